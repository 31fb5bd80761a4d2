"""What watches a training: signals that leave a checkpoint, lines of progress, a probe of the answers."""

import json
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import distributed
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ntl.config import DecodingConfig
from ntl.decoding import decode
from ntl.evaluation import number_metrics
from ntl.training.decode import SECONDS_BETWEEN, max_new_tokens
from ntl.training.parts import RunParts

# SIGUSR2 is what submitit lets Slurm send before a time limit.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


# What a step's end asks for, the most of any rank.
SAVE, STOP = 1, 2
GROUP_EXAMPLES = 20
ALL = "all"  # the one group of a data set that has none


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


class Probe(TrainerCallback):
    """Every ``steps`` steps the greedy answers to the first ``GROUP_EXAMPLES`` examples of each group of a test set.

    A probe is one entry ``{"step", "probe": {group: MAPE in percent}}`` of the trainer's history, which a checkpoint
    keeps, and one line of metrics.jsonl; a group whose MAPE is undefined is left out. Nothing of the training changes:
    the random state is put back, and no weight is touched.
    """

    def __init__(
        self, read: Callable[[], Sequence[str]], answers: Sequence[str], groups: Sequence[str], steps: int, path: Path
    ) -> None:
        self.read, self.answers, self.groups = read, answers, groups
        self.steps = steps
        self.path = path

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Before the checkpoint of the same step is written."""
        if state.global_step % self.steps:
            return
        entry: dict[str, Any] = {"step": state.global_step, "probe": self.mape()}
        state.log_history.append(entry)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def mape(self) -> Mapping[str, float]:
        """group -> mean absolute percentage error of the model as it is now."""
        answered = self.read()
        found = {}
        for group in dict.fromkeys(self.groups):
            of_group = [index for index, name in enumerate(self.groups) if name == group]
            texts, right = ([source[i] for i in of_group] for source in (answered, self.answers))
            found[group] = number_metrics(texts, right)["mape"]
        return {group: round(value, 4) for group, value in found.items() if math.isfinite(value)}


def probe(parts: RunParts, steps: int, path: Path) -> Probe:
    """Of the first test split; ``path`` is metrics.jsonl."""
    split = parts.dataset.test_splits[0]
    chosen: dict[str, list[int]] = {}
    rows = parts.rows(split)
    for index, row in enumerate(rows):
        of_group = chosen.setdefault(parts.dataset.group(row["id"]) or ALL, [])
        if len(of_group) < GROUP_EXAMPLES:
            of_group.append(index)
    indices = [index for group in sorted(chosen) for index in chosen[group]]
    encoded = parts.encoded(split)
    examples = [encoded[index] for index in indices]

    def read() -> list[str]:
        model: Any = parts.model
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
            answers = decode(
                DecodingConfig(name="greedy"),
                model=model,
                tokenizer=parts.tokenizer,
                examples=examples,
                collate=parts.collator.prompts,
                max_new_tokens=max_new_tokens(parts),
            )
        return [answer.text for answer in answers]

    groups = [group for group in sorted(chosen) for _ in chosen[group]]
    return Probe(read, [rows[index]["answer"] for index in indices], groups, steps, path)
