"""Training speed: our trainer against a plain Seq2SeqTrainer."""

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import DataCollatorForSeq2Seq, PrinterCallback, Seq2SeqTrainer, TrainerCallback, set_seed

from ntl.benchmarks.timing import Row, in_turns
from ntl.config import Config, build, compose
from ntl.training.callbacks import training_arguments
from ntl.training.parts import RunParts
from ntl.training.trainer import ObjectiveTrainer


class Clock(TrainerCallback):
    """Records the time at which each optimizer step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the time after synchronising with the device."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())


def _quiet(arguments: Any) -> Any:
    # Neither side saves, logs or evaluates while it is timed.
    arguments.set_save("no")
    arguments.set_logging("no")
    arguments.set_evaluate("no")
    return arguments


def ours(config: Config, scratch: Path, clock: Clock) -> Any:
    """Return our trainer, with prepared data, cached token ids and objective."""
    trainer = ObjectiveTrainer(RunParts(config, say=lambda line: None), scratch / "run", callbacks=[clock])
    _quiet(trainer.args)
    return trainer


def bare(config: Config, scratch: Path, clock: Clock) -> Any:
    """Return a plain trainer, with tokenized rows, a standard collator and the model's loss."""
    parts = RunParts(config, say=lambda line: None)
    tokenizer, rows = parts.tokenizer, parts.rows("train")
    set_seed(config.seed)
    model: Any = build(config.model, tokenizer=tokenizer)
    end = [tokenizer.eos_token_id]
    questions: Any = tokenizer([row["question"] for row in rows], add_special_tokens=False)["input_ids"]
    answers: Any = tokenizer([row["answer"] for row in rows], add_special_tokens=False)["input_ids"]
    pairs = zip(questions, answers, strict=True)
    if model.config.is_encoder_decoder:
        data = [{"input_ids": q + end, "labels": a + end} for q, a in pairs]
    else:
        data = [{"input_ids": q + a + end, "labels": [-100] * len(q) + a + end} for q, a in pairs]
    trainer = Seq2SeqTrainer(
        model=model,
        args=_quiet(training_arguments(config, scratch / "bare")),
        train_dataset=data,  # pyright: ignore[reportArgumentType] - a list is a data set to the Trainer
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def compare(overrides: Sequence[str], *, steps: int, rounds: int) -> Row:
    """Measure a step of our trainer and of a plain one in turns, after a fifth of them."""

    def measure(make: Callable[[Config, Path, Clock], Any]) -> float:
        clock = Clock()
        make(config, Path(folder), clock).train()
        return median(after - before for before, after in pairwise(clock.ends[steps // 5 :]))

    with tempfile.TemporaryDirectory() as folder:
        places = [f"data_dir={Path(folder) / 'data'}", f"output_dir={folder}", "tracking=none"]
        config = compose([*overrides, *places, f"trainer.max_steps={steps}", "trainer.save_steps=0"])
        measure(ours)  # fills the caches and triggers lazy imports
        step = in_turns({"ours": partial(measure, ours), "bare": partial(measure, bare)}, rounds)
    batch = config.trainer.batch_size * config.trainer.accumulation_steps
    return {
        "overrides": list(overrides),
        "model": config.model.name,
        "loss": config.loss.name,
        "steps": steps,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "examples_per_s": {name: batch / median(step[name]) for name in step},
        "speed_ratio": median(bare / ours for bare, ours in zip(step["bare"], step["ours"], strict=True)),
    }
