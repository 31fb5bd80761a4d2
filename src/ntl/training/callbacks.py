"""What a run does and shows while it trains: the banner, a checkpoint on a signal, progress lines, and probes."""

import json
import math
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
from torch import distributed
from transformers import TrainerCallback

from ntl.config import DecodingConfig
from ntl.decoding.batches import SECONDS_BETWEEN
from ntl.evaluation import number_metrics
from ntl.models.lora import parameters
from ntl.system.machine import device_name
from ntl.training.decode import decode_in_training
from ntl.training.parts import RunParts
from ntl.training.trainer import ObjectiveTrainer

# submitit has Slurm send SIGUSR2 before the time limit of a job.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
# What a rank requests at the end of a step, in increasing order: the maximum over all ranks counts.
SAVE, STOP = 1, 2
GROUP_EXAMPLES = 20  # examples that a probe reads of each group
BANNER_ROWS = 1000
ALL = "all"  # the only group of a data set without groups


def banner(parts: RunParts, trainer: ObjectiveTrainer, folder: Path, step: int = 0) -> list[str]:
    """Return the lines that a run prints before its first step; it continues from ``step``.

    The tokens of a step are estimated from the lengths of ``BANNER_ROWS`` training examples.
    """
    config, args, train = parts.config, trainer.args, parts.encoded("train")
    size = parameters(parts.model)
    trained = sum(each.numel() for each in parts.model.parameters() if each.requires_grad)
    rows = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    chosen = np.linspace(0, len(train) - 1, min(len(train), BANNER_ROWS)).astype(np.int64)
    tokens = rows * float(np.mean(train.lengths(chosen)))
    validation, tests = len(cast(Any, trainer.eval_dataset)), ", ".join(parts.dataset.test_splits)
    devices = f"{args.world_size} x {device_name(args.device)}" if args.world_size > 1 else device_name(args.device)
    return [
        f"{folder.name}",
        f"  model   {config.model.name}, {size:,} parameters{'' if trained == size else f', {trained:,} trained'}",
        f"  device  {devices}",
        f"  rows    {config.dataset.name}: {len(train):,} to train on, {validation:,} to validate; tests: {tests}",
        f"  steps   {f'{step:,} of ' if step else ''}{args.max_steps:,}{' done' if step else ''}, "
        f"each of {rows:,} rows, about {float(f'{tokens:.2g}'):,.0f} tokens",
        f"  folder  {folder}",
    ]


class StopOnSignal(TrainerCallback):
    """Save a checkpoint and stop after the current step when a signal arrives; a second one has its usual effect.

    It is a context manager that installs the signal handlers, and the callback that acts on a signal. SIGTERM does not
    stop the training if it already had a handler, as submitit installs one in a Slurm job: the job is then about to be
    killed, and would count as failed if it ended by itself.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._save = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopOnSignal":
        try:
            self._previous = {number: signal.signal(number, self._receive) for number in SIGNALS}
        except ValueError:  # only the main thread may install handlers; in another, signals keep their effect
            self._previous = {}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and callable(self._previous[number]):
            self._save = True
            return
        self.received = number
        self.__exit__()

    def call_previous_handler(self) -> None:
        """Call the received signal's previous handler, if any; submitit's requeues the job and does not return."""
        previous = self._previous.get(self.received or 0)
        if callable(previous):
            previous(self.received, None)

    def requested(self, device: torch.device) -> int:
        """Return what any rank requests: STOP, SAVE or 0. Every rank must call this at the same step."""
        request = STOP if self.received is not None else SAVE if self._save else 0
        if not distributed.is_initialized():
            return request
        # A signal reaches the ranks at different steps. A rank that stopped alone would leave the others waiting.
        flag = torch.tensor(request, device=device)
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return int(flag)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        request = self.requested(args.device)
        self._save = False
        control.should_save |= request > 0
        control.should_training_stop |= request == STOP


class ProgressLines(TrainerCallback):
    """Prints lines such as ``step 250/500  loss 1.2340  ce 1.1000  ntl 0.4000  31.0 steps/s  8 s left``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.started = self.last_line = time.monotonic()
        self.first_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock: rate and remaining time count from the first step of this process."""
        self.started = self.last_line = time.monotonic()
        self.first_step = state.global_step

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Print a line for a training log; evaluations are in metrics.jsonl alone."""
        now, done = time.monotonic(), state.global_step - self.first_step
        if logs is None or "loss" not in logs or not done:
            return
        if now - self.last_line < SECONDS_BETWEEN and state.global_step < state.max_steps:
            return
        self.last_line = now
        rate = done / (now - self.started)
        left = (state.max_steps - state.global_step) / rate
        shown = "  ".join(f"{name} {logs[name]:.4f}" for name in ("loss", "ce", "ntl") if name in logs)
        self.say(f"step {state.global_step:,}/{state.max_steps:,}  {shown}  {rate:.1f} steps/s  {left:.0f} s left")


class Probe(TrainerCallback):
    """Scores greedy answers to the first examples of each group of the first test split, every ``steps`` steps.

    A probe is one entry ``{"step", "probe": {group: MAPE in percent}}`` of the trainer's history, which a checkpoint
    keeps, and one line of the run's metrics.jsonl, ``path``. It does not affect the training.
    """

    def __init__(self, parts: RunParts, steps: int, path: Path) -> None:
        self.parts, self.steps, self.path = parts, steps, path
        split = parts.dataset.test_splits[0]
        rows, encoded = parts.rows(split), parts.encoded(split)
        in_group: dict[str, list[int]] = {}
        for index, row in enumerate(rows):
            in_group.setdefault(parts.dataset.group(row["id"]) or ALL, []).append(index)
        chosen = [(group, index) for group in sorted(in_group) for index in in_group[group][:GROUP_EXAMPLES]]
        self.groups = [group for group, _ in chosen]
        self.answers = [rows[index]["answer"] for _, index in chosen]
        self.examples = [encoded[index] for _, index in chosen]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe before the checkpoint of the same step is written, so that the checkpoint includes the probe."""
        if state.global_step % self.steps == 0:
            entry: dict[str, Any] = {"step": state.global_step, "probe": self.mape()}
            state.log_history.append(entry)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def mape(self) -> dict[str, float]:
        """Return group -> mean absolute percentage error, in percent; a group where it is undefined is left out."""
        answered = decode_in_training(self.parts, DecodingConfig(name="greedy"), self.examples)
        found = {}
        for group in dict.fromkeys(self.groups):
            indices = [index for index, name in enumerate(self.groups) if name == group]
            texts, correct = [answered[index].text for index in indices], [self.answers[index] for index in indices]
            found[group] = number_metrics(texts, correct)["mape"]
        return {group: round(value, 4) for group, value in found.items() if math.isfinite(value)}
