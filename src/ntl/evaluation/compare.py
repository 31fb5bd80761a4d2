"""Predicted numbers beside the true ones, and beside what needs no language model."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntl.data.prepared import SplitRows
from ntl.evaluation.metrics import RIDGE
from ntl.evaluation.numeric import constant_baselines
from ntl.evaluation.ridge import Ridge
from ntl.system.errors import needs


def references(train: Path, validation: Path, questions: Sequence[str]) -> dict[str, list[str]]:
    """What ridge regression, unless its fit overflows, and constants answer to these questions."""
    rows, answers = list[Any]([SplitRows(train), SplitRows(validation)]), dict[str, list[str]]()
    with suppress(ValueError):
        answers[RIDGE] = Ridge(rows[0], rows[1]).answers(questions)
    constants = constant_baselines([row["answer"] for row in rows[0]])
    return answers | {f"constant ({name})": [constants[name]] * len(questions) for name in ("median", "mean")}


def compare(
    y: NDArray,
    predicted: Mapping[str, NDArray],
    chosen: str,
    ends: Mapping[float, Sequence[NDArray]],
    level: float,
    *,
    powers: bool = False,
) -> tuple[Any, Any]:
    """Print and return MAE, RMSE and R2 of predictions (n,) by their name, and ``draw`` the chosen ones.

    ``ends``: low and high ends of intervals around these by level, of which one ``level`` is shown. With ``powers``
    there is the mean of |log10(predicted / y)|, too, "powers of ten".
    """
    with needs("train"):
        import pandas as pd
        from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
    metrics: dict[str, Any] = {"MAE": mean_absolute_error, "RMSE": root_mean_squared_error, "R2": r2_score}
    if powers:
        metrics["powers of ten"] = lambda y, p: np.abs(np.log10(p / y)).mean()
    scores = {name: {metric: float(score(y, p)) for metric, score in metrics.items()} for name, p in predicted.items()}
    covered = {nominal: float(((low <= y) & (y <= high)).mean()) for nominal, (low, high) in ends.items()}
    if ends:
        scores[chosen] |= {"coverage": covered[level], "width": float(np.mean(ends[level][1] - ends[level][0]))}
    table = pd.DataFrame(scores).T.rename(index={chosen: f"{chosen} (chosen)"})
    print(table.to_string(float_format=lambda value: f"{value:.4g}", na_rep=""))
    if scores.get(RIDGE, scores[chosen])["MAE"] < scores[chosen]["MAE"]:
        print("Ridge regression on characters has less error: the language model adds nothing.")
    return table, draw(y, predicted[chosen], ends.get(level), covered)


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
