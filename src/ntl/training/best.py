"""The best checkpoint of a run by a validation metric, and the end of a training that no longer improves it."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from transformers import TrainerCallback

from ntl.evaluation.metrics import find_metric


class Best(NamedTuple):
    """The best evaluation so far: its step (None while there is none), its value, and how many came after it."""

    step: int | None = None
    value: float = math.nan
    since: int = 0


def best_of(history: Iterable[Mapping[str, Any]], metric: str) -> Best:
    """Return the best evaluation of a trainer's history; the first of equal ones, and never an undefined one."""
    best, sign = Best(), find_metric(metric).better.value
    for entry in history:
        if "eval_loss" in entry:
            value = entry.get(f"eval_{metric}", math.nan)
            if not math.isnan(value) and (best.step is None or sign * value > sign * best.value):
                best = Best(int(entry["step"]), value)
            elif best.step is not None:
                best = best._replace(since=best.since + 1)
    return best


class KeepBest(TrainerCallback):
    """Saves a checkpoint at every new best evaluation; stops ``patience`` evaluations after the best one (0: never).

    Everything follows from the trainer's history, which each checkpoint has: a resumed run decides as it would have,
    which EarlyStoppingCallback does not. The Trainer's own ``metric_for_best_model`` is what the plateau watches.
    """

    def __init__(self, metric: str, patience: int = 0) -> None:
        self.metric = metric
        self.patience = patience
        self.best = Best()

    @property
    def is_over(self) -> bool:
        """Whether the training has been without improvement for too long."""
        return 0 < self.patience <= self.best.since

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.best = best_of(state.log_history, self.metric)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.best = best_of(state.log_history, self.metric)
        control.should_save |= self.is_over or self.best.step == state.global_step
        control.should_training_stop |= self.is_over
