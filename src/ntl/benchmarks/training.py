"""``scripts/benchmark_training.py``: time and memory of optimizer steps by config, relative to the first."""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from transformers import DataCollatorForSeq2Seq, PrinterCallback, Seq2SeqTrainer, Trainer, TrainerCallback, set_seed

from ntl.benchmarks.timing import MIB, Row, clock, in_turns, launched, peak_bytes, ratios
from ntl.config import build, compose
from ntl.runs.parts import RunParts
from ntl.training.callbacks import training_arguments
from ntl.training.trainer import ObjectiveTrainer

BARE = "bare"


class Clock(TrainerCallback):
    """Records the time at which each optimizer step ended."""

    def __init__(self, device: str) -> None:
        self.tick, self.ends = clock(device), list[float]()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append(self.tick())


def bare(parts: RunParts, folder: Path) -> Trainer:
    """Return a plain trainer, with tokenized rows, a standard collator and the model's loss."""
    config, tokenizer, rows = parts.config, parts.tokenizer, parts.rows("train")
    set_seed(config.seed)
    model: Any = build(config.model, tokenizer=tokenizer)
    texts: Any = [[row[name] for row in rows] for name in ("question", "answer")]
    ids = (tokenizer(column, add_special_tokens=False)["input_ids"] for column in texts)
    end, joined = [tokenizer.eos_token_id], not model.config.is_encoder_decoder
    data: Any = [
        {"input_ids": q + joined * a + end, "labels": joined * len(q) * [-100] + a + end}
        for q, a in zip(*ids, strict=True)
    ]
    arguments = training_arguments(config.trainer, folder, parts.device, seed=config.seed, watch=config.objective.watch)
    trainer = Seq2SeqTrainer(model, arguments, DataCollatorForSeq2Seq(tokenizer, model=model), train_dataset=data)
    trainer.remove_callback(PrinterCallback)
    return trainer


def trainer_of(row: str, common: Sequence[str], folder: Path, max_steps: int) -> Trainer:
    """Return the trainer of a row, which saves, logs and evaluates nothing."""
    words = [] if row == BARE else row.split()
    parts = RunParts(compose([*common, *words]))
    trainer = bare(parts, folder / BARE) if row == BARE else ObjectiveTrainer(parts, folder / "run")
    trainer.args.max_steps = max_steps
    for what in (trainer.args.set_save, trainer.args.set_logging, trainer.args.set_evaluate):
        what("no")
    return trainer


def compare(rows: Sequence[str], common: Sequence[str], *, device: str, steps: int, rounds: int) -> Iterator[Row]:
    """Yield the median seconds of a step of each row, behind the first fifth of the steps, and its peak memory.

    A row is overrides with spaces between them, behind ``common``; "bare" is a plain Seq2SeqTrainer with the model's
    own loss. Memory is of two steps, beyond the weights and what else there is before; what is launched, of the third.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = [f"data_dir={folder}/data", f"output_dir={folder}", "tracking=none", f"device={device}"]
        fixed = [*common, *places, f"trainer.max_steps={steps}", "trainer.save_steps=0"]
        make = {row: partial(trainer_of, row, fixed, Path(folder)) for row in dict.fromkeys(rows)}

        def step_seconds(row: str) -> float:
            trainer, times = make[row](max_steps=steps), Clock(device)
            trainer.add_callback(times)
            trainer.train()
            return median(after - before for before, after in pairwise(times.ends[steps // 5 :]))

        for row in make:  # fills the caches and triggers lazy imports
            step_seconds(row)
        peaks = {row: peak_bytes(make[row](max_steps=2).train, device) / MIB for row in make}
        counts = {row: [launched(make[row](max_steps=steps).train, device) for steps in (2, 3)] for row in make}
        seconds = in_turns({row: partial(step_seconds, row) for row in make}, device, rounds)[1]
    first = next(iter(make))
    for row, medians in seconds.items():
        times = {"seconds": median(medians), **ratios(medians, seconds[first])}
        memory = {"peak_mib": peaks[row], "peak_ratio": peaks[row] / peaks[first]}
        step = {name: count - counts[row][0][name] for name, count in counts[row][1].items()}
        yield {"steps": steps, "rounds": rounds, "row": row, **times, **memory, **step}
