"""``scripts/benchmark_training.py``: our trainer against a plain Seq2SeqTrainer."""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.benchmark import timer
from transformers import DataCollatorForSeq2Seq, PrinterCallback, Seq2SeqTrainer, TrainerCallback, set_seed

from ntl.benchmarks.timing import Row, in_turns
from ntl.config import Config, build, compose
from ntl.training.callbacks import training_arguments
from ntl.training.parts import RunParts
from ntl.training.trainer import ObjectiveTrainer


class Clock(TrainerCallback):
    """Records the time at which each optimizer step ended, after synchronising with a GPU."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append(timer())


def ours(config: Config, scratch: Path, clock: Clock) -> Any:
    """Return our trainer, with prepared data, cached token ids and objective."""
    return ObjectiveTrainer(RunParts(config, say=lambda line: None), scratch / "run", callbacks=[clock])


def bare(config: Config, scratch: Path, clock: Clock) -> Any:
    """Return a plain trainer, with tokenized rows, a standard collator and the model's loss."""
    parts = RunParts(config, say=lambda line: None)
    tokenizer, rows = parts.tokenizer, parts.rows("train")
    set_seed(config.seed)
    model: Any = build(config.model, tokenizer=tokenizer)
    texts: Any = [[row[name] for row in rows] for name in ("question", "answer")]
    ids = (tokenizer(each, add_special_tokens=False)["input_ids"] for each in texts)
    end, joined = [tokenizer.eos_token_id], not model.config.is_encoder_decoder
    data: Any = [
        {"input_ids": q + joined * a + end, "labels": joined * len(q) * [-100] + a + end}
        for q, a in zip(*ids, strict=True)
    ]
    arguments, collator = training_arguments(config, scratch / "bare"), DataCollatorForSeq2Seq(tokenizer, model=model)
    trainer = Seq2SeqTrainer(model, arguments, train_dataset=data, data_collator=collator, callbacks=[clock])
    trainer.remove_callback(PrinterCallback)
    return trainer


def step_seconds(make: Callable[[Config, Path, Clock], Any], config: Config, folder: Path) -> float:
    """Return the median seconds of a step after a fifth of them, in which nothing is saved, logged or evaluated."""
    trainer = make(config, folder, clock := Clock())
    for what in (trainer.args.set_save, trainer.args.set_logging, trainer.args.set_evaluate):
        what("no")
    trainer.train()
    return median(after - before for before, after in pairwise(clock.ends[config.trainer.max_steps // 5 :]))


def compare(overrides: Sequence[str], *, steps: int, rounds: int) -> Row:
    """Measure a step of our trainer and of a plain one in turns."""
    with tempfile.TemporaryDirectory() as folder:
        places = [f"data_dir={folder}/data", f"output_dir={folder}", "tracking=none"]
        config = compose([*overrides, *places, f"trainer.max_steps={steps}", "trainer.save_steps=0"])
        calls = {make.__name__: partial(step_seconds, make, config, Path(folder)) for make in (ours, bare)}
        calls["ours"]()  # fills the caches and triggers lazy imports
        step = in_turns(calls, "cpu", rounds)[1]
    batch = config.trainer.batch_size * config.trainer.accumulation_steps
    return {
        **{"model": config.model.name, "loss": config.loss.name, "steps": steps, "rounds": rounds},
        **{"threads": torch.get_num_threads(), "overrides": " ".join(overrides)},
        **{f"{name}_examples_per_s": batch / median(step[name]) for name in step},
        "speed_ratio": median(bare / ours for bare, ours in zip(step["bare"], step["ours"], strict=True)),
    }
