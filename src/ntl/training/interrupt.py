"""Ctrl-C and SIGTERM leave a checkpoint: the step under way is finished, saved, and then the run ends."""

import signal
from types import FrameType
from typing import Any

import torch
from torch import distributed
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopOnSignal(TrainerCallback):
    """A context manager that catches the signals, and the callback that acts on them after the current step.

    A second signal acts at once, as it would without this.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopOnSignal":
        try:
            self._previous = {number: signal.signal(number, self._receive) for number in SIGNALS}
        except ValueError:
            # Only the main thread may; elsewhere signals keep their meaning.
            self._previous = {}
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def requested(self, device: torch.device) -> bool:
        """Whether a signal came to any rank. Every rank must ask at the same step, and all get the same answer."""
        if not distributed.is_initialized():
            return self.received is not None
        # A signal reaches the ranks at different steps; one that stopped alone would leave the others waiting.
        flag = torch.tensor(int(self.received is not None), device=device)
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return bool(flag)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save and stop if a signal came."""
        if self.requested(args.device):
            control.should_save = True
            control.should_training_stop = True
