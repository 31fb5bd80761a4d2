"""Progress of training and of decoding as plain lines, at most one in a few seconds."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

SECONDS_BETWEEN = 5.0


class ProgressLines(TrainerCallback):
    """``step 250/500  loss 1.234  ce 1.1  ntl 0.4  31 steps/s  8 s left``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.started = self.last_line = time.monotonic()
        self.first_step = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Time counts from the first step of this process."""
        self.started = self.last_line = time.monotonic()
        self.first_step = state.global_step

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """A line for training logs; evaluations are in metrics.jsonl."""
        now = time.monotonic()
        done = state.global_step - self.first_step
        if logs is None or "loss" not in logs or not done:
            return
        if now - self.last_line < SECONDS_BETWEEN and state.global_step < state.max_steps:
            return
        self.last_line = now
        rate = done / (now - self.started)
        left = (state.max_steps - state.global_step) / rate
        shown = "  ".join(f"{name} {logs[name]:.4f}" for name in ("loss", "ce", "ntl") if name in logs)
        self.say(f"step {state.global_step:,}/{state.max_steps:,}  {shown}  {rate:.1f} steps/s  {left:.0f} s left")


class DecodingLines:
    """``decoding interpolate 2,048/10,000, 31 s left``; called with the number of examples that are done.

    ``known`` of them were when it began.
    """

    def __init__(self, say: Callable[[str], None], split: str, total: int, known: int = 0) -> None:
        self.say = say
        self.split = split
        self.total = total
        self.known = known
        self.started = self.last_line = time.monotonic()

    def __call__(self, done: int) -> None:
        """Nothing for the last example: the caller says how many were decoded."""
        now = time.monotonic()
        if now - self.last_line < SECONDS_BETWEEN or done >= self.total:
            return
        self.last_line = now
        left = (self.total - done) * (now - self.started) / (done - self.known)
        self.say(f"decoding {self.split} {done:,}/{self.total:,}, {left:.0f} s left")
