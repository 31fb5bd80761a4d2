"""Compare our trainer with a plain Seq2SeqTrainer on the same model, batches and optimizer, in one process."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import (
    DataCollatorForSeq2Seq,
    PrinterCallback,
    Seq2SeqTrainer,
    TrainerCallback,
    set_seed,
)

from ntl.config import Config, build, compose
from ntl.system.errors import UserError
from ntl.training.arguments import training_arguments
from ntl.training.parts import RunParts


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
    # Neither side saves or logs while it is timed.
    arguments.set_save("no")
    arguments.set_logging("no")
    return arguments


def ours(config: Config, scratch: Path) -> Callable[[Clock], Any]:
    """Return a function that builds our trainer, with prepared data, cached token ids and objective."""

    def make(clock: Clock) -> Any:
        trainer = RunParts(config, say=lambda line: None).trainer(scratch / "run", callbacks=[clock])
        _quiet(trainer.args)
        return trainer

    return make


def bare(config: Config, scratch: Path) -> Callable[[Clock], Any]:
    """Return a function that builds a plain trainer, with tokenized rows, a standard collator and the model's loss."""

    def make(clock: Clock) -> Any:
        parts = RunParts(config, say=lambda line: None)
        tokenizer, rows = parts.tokenizer, parts.rows("train")
        set_seed(config.seed)
        model: Any = build(config.model, tokenizer=tokenizer)
        end = [tokenizer.eos_token_id]
        questions: Any = tokenizer([row["question"] for row in rows], add_special_tokens=False)["input_ids"]
        answers: Any = tokenizer([row["answer"] for row in rows], add_special_tokens=False)["input_ids"]
        if model.config.is_encoder_decoder:
            data = [{"input_ids": q + end, "labels": a + end} for q, a in zip(questions, answers, strict=True)]
        else:
            pairs = zip(questions, answers, strict=True)
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

    return make


def measure(make: Callable[[Clock], Any], warm_up: int) -> dict[str, float]:
    """Return the seconds until the end of the first step, and the median of a step after ``warm_up`` steps."""
    clock = Clock()
    started = time.perf_counter()
    trainer = make(clock)
    trainer.train()
    steps = [after - before for before, after in zip(clock.ends[warm_up:], clock.ends[warm_up + 1 :], strict=False)]
    return {"first_step_s": clock.ends[0] - started, "step_s": median(steps)}


def compare(overrides: Sequence[str], *, steps: int, rounds: int) -> dict[str, Any]:
    """Alternate the two trainers; ratios are taken within a round, so that a slow phase affects both sides."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        places = [f"data_dir={scratch / 'data'}", f"output_dir={scratch}", "tracking=none"]
        config = compose([*overrides, *places, f"trainer.max_steps={steps}", "trainer.save_steps=0"])
        sides = {"ours": ours(config, scratch), "bare": bare(config, scratch)}
        measure(sides["ours"], 1)  # fills the caches and triggers lazy imports
        measured: list[dict[str, dict[str, float]]] = []
        for turn in range(rounds):
            order = list(sides) if turn % 2 else list(sides)[::-1]
            measured.append({name: measure(sides[name], warm_up=steps // 5) for name in order})
    batch = config.trainer.batch_size * config.trainer.accumulation_steps
    return {
        "overrides": list(overrides),
        "model": config.model.name,
        "loss": config.loss.name,
        "steps": steps,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "examples_per_s": {name: batch / median(turn[name]["step_s"] for turn in measured) for name in sides},
        "speed_ratio": median(turn["bare"]["step_s"] / turn["ours"]["step_s"] for turn in measured),
        "first_step_s": {name: median(turn[name]["first_step_s"] for turn in measured) for name in sides},
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print one row for each combination of model and loss, as a table or with ``--json`` as JSON."""
    parser = argparse.ArgumentParser(prog="benchmark_training.py", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, for example dataset=noisy_numbers")
    parser.add_argument("--models", nargs="+", default=["gpt2_tiny", "t5_tiny"])
    parser.add_argument("--losses", nargs="+", default=["ce", "ntl_was"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(argv)
    if chosen.steps < 3 or chosen.rounds < 1:
        raise UserError(f"--steps {chosen.steps} --rounds {chosen.rounds}: at least 3 steps and 1 round are measured")
    results = [
        compare([f"model={model}", f"loss={loss}", *chosen.overrides], steps=chosen.steps, rounds=chosen.rounds)
        for model in chosen.models
        for loss in chosen.losses
    ]
    if chosen.json:
        print(json.dumps(results, indent=1))
        return
    columns = ("model", "our loss (bare: CE)", "ours, examples/s", "bare, examples/s", "speed ratio", "first step, s")
    table = Table(
        *columns, title=f"Training speed, {torch.get_num_threads()} threads, medians of {chosen.rounds} rounds"
    )
    for result in results:
        speed, first = result["examples_per_s"], result["first_step_s"]
        table.add_row(
            result["model"],
            result["loss"],
            f"{speed['ours']:.0f}",
            f"{speed['bare']:.0f}",
            f"{result['speed_ratio']:.3f}",
            f"{first['ours']:.2f} (bare {first['bare']:.2f})",
        )
    Console().print(table)
