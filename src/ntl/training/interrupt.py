"""Ctrl-C, SIGTERM and SIGUSR2 leave a checkpoint: the step under way is finished, saved, and then the run ends."""

import signal
from types import FrameType
from typing import Any

import torch
from torch import distributed
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# SIGUSR2 is what submitit lets Slurm send before a time limit.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


# What a step's end asks for, the most of any rank.
SAVE, STOP = 1, 2


class StopOnSignal(TrainerCallback):
    """A context manager that catches the signals, and the callback that acts on them after the current step.

    A second signal acts at once, as it would without this. SIGTERM stops nothing where somebody listened to it before:
    submitit does in a Slurm job, which is then about to be killed and would count as failed if it ended by itself. So
    a checkpoint is taken, and training goes on until the kill.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._save = False
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
        if number == signal.SIGTERM and callable(self._previous[number]):
            self._save = True
            return
        self.received = number
        self._restore()

    def hand_on(self) -> None:
        """To whoever listened before: submitit's handler of SIGUSR2 requeues the job, and does not return."""
        previous = self._previous.get(self.received) if self.received is not None else None
        if callable(previous):
            previous(self.received, None)

    def requested(self, device: torch.device) -> bool:
        """Whether a signal to stop came to any rank. Every rank must ask at the same step; all get the same answer."""
        return self._wanted(device) == STOP

    def _wanted(self, device: torch.device) -> int:
        wanted = STOP if self.received is not None else SAVE if self._save else 0
        if not distributed.is_initialized():
            return wanted
        # A signal reaches the ranks at different steps; one that stopped alone would leave the others waiting.
        flag = torch.tensor(wanted, device=device)
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return int(flag)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save, and stop, if a signal came."""
        if wanted := self._wanted(args.device):
            self._save = False
            control.should_save = True
            control.should_training_stop = control.should_training_stop or wanted == STOP
