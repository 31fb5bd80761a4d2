"""Predicted numbers beside the true ones, and beside what needs no language model."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntl.evaluation.metrics import RIDGE
from ntl.evaluation.numeric import constant_baselines
from ntl.evaluation.ridge import Ridge, Rows
from ntl.system.errors import needs


def references(train: Rows, validation: Rows, questions: Sequence[str]) -> dict[str, list[str]]:
    """What ridge regression, unless its fit overflows, and constants answer to these questions."""
    found = dict[str, list[str]]()
    with suppress(ValueError):
        found[RIDGE] = Ridge(train, validation).answers(questions)
    constants = constant_baselines([row["answer"] for row in train])
    return found | {f"constant ({name})": [constants[name]] * len(questions) for name in ("median", "mean")}


def errors(y: NDArray, predicted: NDArray, *, powers: bool = False) -> dict[str, float]:
    """MAE, RMSE and R2 of numbers (n,); with ``powers`` also the mean of |log10(predicted / y)|, "powers of ten"."""
    with needs("train"):
        from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
    scores = {"MAE": mean_absolute_error, "RMSE": root_mean_squared_error, "R2": r2_score}
    found = {name: float(score(y, predicted)) for name, score in scores.items()}
    return found | ({"powers of ten": float(np.abs(np.log10(predicted / y)).mean())} if powers else {})


def draw(y: NDArray, predicted: NDArray, ends: Sequence[NDArray] | None, covered: Mapping[float, float]) -> Any:
    """Two axes of matplotlib: predicted against true numbers (n,), with low and high ends of intervals, and how often
    intervals of each level hold the true number. None without matplotlib."""
    with suppress(ImportError):
        from matplotlib import pyplot

        _, axes = pyplot.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
        sizes = np.abs([predicted - ends[0], ends[1] - predicted]) if ends else None
        axes[0].errorbar(y, predicted, yerr=sizes, fmt=".", elinewidth=0.4)
        axes[0].axline((y.mean(), y.mean()), slope=1, color="grey", linewidth=0.8)
        axes[0].set(xlabel="true", ylabel="predicted")
        axes[1].plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        axes[1].plot([*covered], [*covered.values()], marker="o")
        axes[1].set(xlabel="level of the intervals", ylabel="share that holds the true number")
        return axes
    return None
