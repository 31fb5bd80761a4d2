"""Metrics of numeric answers."""

import math
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from ntl.evaluation.pairs import Pairs
from ntl.evaluation.rules import AnswerRule, get_rule

NUMBER_METRICS = (
    "accuracy",
    "mae",
    "mse",
    "rmse",
    "r2",
    "median_error",
    "log_mae",
    "log_r2",
    "pearson",
    "spearman",
    "mape",
    "mape_median",
    "mape_clipped",
    "within_1_percent",
    "unparsable",
    "count",
)


def number_metrics(
    predictions: Sequence[str],
    answers: Sequence[str],
    *,
    rule: str = "default",
    groups: Sequence[str | None] | None = None,
) -> dict[str, float]:
    """Score N generated texts against N answers; the keys are NUMBER_METRICS. A metric that is undefined is NaN.

    Over all N: accuracy (exact on decimals; unparsable is wrong), within_1_percent (|p - l| <= |l| / 100, so an answer
    of 0 asks for 0), unparsable, all shares in [0, 1]; count is N.
    Over the parsed pairs: mae, mse, rmse, median_error (of |p - l|), r2 = 1 - sum (p - l)^2 / sum (l - mean l)^2
    (undefined for constant answers), pearson and spearman (undefined for a constant side or fewer than two pairs), and
    log_mae, log_r2 on sign(x) log10(|x| + 1), the "MAE" and "R2" of the paper's Table 1.
    In percent, over answers other than 0, which have no relative error: mape, the mean over the parsed pairs of a cell
    (group), then the unweighted mean over cells (Table 5; without groups there is one cell). A cell whose answers are
    all 0 has no MAPE and is left out; a cell without any parsed pair makes mape undefined, since leaving it out would
    reward a model for failing there. mape_clipped is the same mean with each error clipped at 100 and 100 for an
    unparsable prediction; mape_median is the median over the parsed pairs of all cells.

    Errors are computed on decimals of any length. What exceeds float64 is inf, and so is a mean that holds it (r2 is
    then -inf, pearson undefined); the signed log stays finite.

    With rule="paper" the same formulas run on what the original code compares: predictions clipped to ±1e10, answers
    not, accuracy by np.isclose, 0 for a correlation of fewer than two pairs.

    ValueError: lengths differ, the rule is unknown, or an answer holds no number.
    """
    if len(predictions) != len(answers) or (groups is not None and len(groups) != len(answers)):
        raise ValueError(
            f"{len(predictions)} predictions, {len(answers)} answers and "
            f"{'no' if groups is None else len(groups)} groups: the lengths must be equal"
        )
    chosen = get_rule(rule)
    pairs = chosen.compare([chosen.extract(text) for text in predictions], extract_answers(answers, chosen))
    return summarize(pairs, chosen, groups)


def extract_answers(answers: Sequence[str], rule: AnswerRule) -> list[Decimal]:
    """Parse reference answers, each of which must hold a number. ValueError names the first that does not."""
    values: list[Decimal] = []
    for index, text in enumerate(answers):
        value = rule.extract(text)
        if value is None:
            raise ValueError(f"answer {index} holds no number (rule {rule.name}): {text!r}")
        values.append(value)
    return values


def summarize(pairs: Pairs, rule: AnswerRule, groups: Sequence[str | None] | None = None) -> dict[str, float]:
    """The metrics of `number_metrics` for pairs that are already compared."""
    size = len(pairs)
    good = pairs.take(pairs.valid)
    with np.errstate(all="ignore"):
        mse = _mean(good.error**2)
        return {
            "accuracy": _mean(pairs.correct),
            "mae": _mean(good.error),
            "mse": mse,
            "rmse": math.sqrt(mse),
            "r2": _r2(good.error, good.answer),
            "median_error": _median(good.error),
            "log_mae": _mean(np.abs(good.log_prediction - good.log_answer)),
            "log_r2": _r2(good.log_prediction - good.log_answer, good.log_answer),
            "pearson": _pearson(good.prediction, good.answer, rule.short_correlation),
            "spearman": _pearson(_ranks(good.prediction), _ranks(good.answer), rule.short_correlation),
            "mape": _mean_over_cells(pairs.relative, pairs.valid, pairs.nonzero, groups),
            "mape_median": _median(good.relative[good.nonzero]),
            "mape_clipped": _mean_over_cells(
                np.where(pairs.valid, np.minimum(pairs.relative, 100.0), 100.0),
                np.ones(size, dtype=bool),
                pairs.nonzero,
                groups,
            ),
            "within_1_percent": _mean(pairs.within),
            "unparsable": _mean(~pairs.valid),
            "count": float(size),
        }


def _mean(values: NDArray) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values)) if len(values) else math.nan


def _r2(error: NDArray[np.float64], answer: NDArray[np.float64]) -> float:
    if len(answer) == 0 or answer.min() == answer.max():
        return math.nan
    return float(1 - np.sum(error**2) / np.sum((answer - answer.mean()) ** 2))


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64], short: float) -> float:
    if len(x) < 2:
        return short
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or x.min() == x.max() or y.min() == y.max():
        return math.nan
    x, y = _standardize(x), _standardize(y)
    return float(np.clip(np.dot(x, y), -1.0, 1.0))


def _standardize(x: NDArray[np.float64]) -> NDArray[np.float64]:
    # Scaled before and after centring, so that squares of values near 1e308 or 1e-308 neither overflow nor vanish.
    x = x / np.abs(x).max()
    x = x - x.mean()
    x = x / np.abs(x).max()
    return x / np.sqrt(np.dot(x, x))


def _ranks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average ranks from 1: equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _mean_over_cells(
    values: NDArray[np.float64],
    valid: NDArray[np.bool_],
    nonzero: NDArray[np.bool_],
    groups: Sequence[str | None] | None,
) -> float:
    codes: dict[str | None, int] = {}
    cell = np.array([codes.setdefault(group, len(codes)) for group in groups or [None] * len(values)], dtype=np.intp)
    present = np.bincount(cell[nonzero], minlength=len(codes)) > 0
    used = valid & nonzero
    sums = np.bincount(cell[used], weights=values[used], minlength=len(codes))
    return _mean(sums[present] / np.bincount(cell[used], minlength=len(codes))[present])
