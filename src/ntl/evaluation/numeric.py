"""Metrics of numeric answers, and the constant answers that they are compared with."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, localcontext
from functools import reduce
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntl.evaluation.metrics import CONSTANTS, NUMBER
from ntl.evaluation.rules import WIDE, AnswerRule, Pairs, compare_exactly, get_rule
from ntl.numbers import format_number
from ntl.numbers.answers import read_list

NUMBER_METRICS = tuple(metric.name for metric in NUMBER)
POSITIONS = 20  # of a list of numbers whose errors are told


def number_metrics(
    predictions: Sequence[str],
    answers: Sequence[str],
    *,
    rule: str = "default",
    groups: Sequence[str | None] | None = None,
) -> dict[str, float]:
    """Score N generated texts against N answers; the keys are NUMBER_METRICS. An undefined metric is NaN.

    Over all N: accuracy (exact on decimals; unparsable is wrong), within_1_percent (|p - l| <= |l| / 100), unparsable,
    all shares in [0, 1]; count is N.
    Over the parsed pairs: mae, mse, rmse, median_error (of |p - l|), r2 = 1 - sum (p - l)^2 / sum (l - mean l)^2
    (undefined for constant answers), pearson and spearman (undefined for a constant side or fewer than two pairs), and
    log_mae, log_r2 on sign(x) log10(|x| + 1), the "MAE" and "R2" of the paper's Table 1.
    In percent, over answers other than 0: mape is the mean over the parsed pairs of a cell (group), then the unweighted
    mean over cells (Table 5; without groups there is one cell). A cell without any parsed pair makes mape undefined,
    since leaving it out would reward a model for failing there. mape_clipped is the same mean with each error clipped
    at 100, and 100 for an unparsable prediction; mape_median is the median over the parsed pairs of all cells.
    ape_clipped_10 and log_ape, the mean of log(1 + APE), are over all pairs, an unparsable one with an APE of 100.

    Errors, deviations from a mean and ranks are computed on decimals of any size. An error beyond float64 is inf, and
    so is a mean that includes it; the signed log stays finite.

    With rule="paper" the same formulas are applied as in the original code: predictions clipped to ±1e10, answers not,
    accuracy by np.isclose, 0 for a correlation of fewer than two pairs.

    ValueError: lengths differ, the rule is unknown, or an answer holds no number.
    """
    if len(predictions) != len(answers) or (groups is not None and len(groups) != len(answers)):
        raise ValueError(f"{len(predictions)} predictions and {len(answers)} answers: the lengths must be equal")
    chosen = get_rule(rule)
    targets: list[Any] = [chosen.extract(text) for text in answers]
    if None in targets:
        raise ValueError(f"an answer holds no number (rule {rule}): {answers[targets.index(None)]!r}")
    return pair_metrics(chosen.compare([chosen.extract(text) for text in predictions], targets), chosen, groups)


def pair_metrics(pairs: Pairs, rule: AnswerRule, groups: Sequence[str | None] | None = None) -> dict[str, float]:
    """The metrics of `number_metrics` for compared pairs."""
    valid, nonzero = pairs.valid, pairs.nonzero
    good = pairs.take(valid)
    with np.errstate(all="ignore"):
        relative = np.where(valid, pairs.relative, 100.0)
        clipped, of_nonzero = np.minimum(relative, 100.0), relative[nonzero]
        mse = _mean(good.error**2)
        scores = {
            "mae": _mean(good.error),
            "mse": mse,
            "rmse": math.sqrt(mse),
            "r2": _r2(good.error, good.answer, good.prediction),
            "median_error": _mean(good.error, np.median),
            "log_mae": _mean(np.abs(good.log_error)),
            "log_r2": _r2(good.log_error, good.log_answer),
            "pearson": _pearson(good.prediction, good.answer, rule.short_correlation),
            "spearman": _pearson(_ranks(good.prediction), _ranks(good.answer), rule.short_correlation),
            "mape": _mean_over_cells(pairs.relative, valid & nonzero, nonzero, groups),
            "mape_median": _mean(good.relative[good.nonzero], np.median),
            "mape_clipped": _mean_over_cells(clipped, nonzero, nonzero, groups),
            "ape_clipped_10": _mean(np.minimum(of_nonzero, 10.0)),
            "log_ape": _mean(np.log1p(of_nonzero)),
            "count": float(len(valid)),
        }
        return {metric.name: _mean(metric.values(pairs)) if metric.values else scores[metric.name] for metric in NUMBER}


def list_metrics(predictions: Sequence[str], answers: Sequence[str]) -> tuple[dict[str, float], NDArray[np.bool_]]:
    """Score N generated lists of numbers against N answers (``read_list``): the metrics, and which are exact (N,).

    accuracy: share of the answers whose numbers are all exact. mae/1, mae/2, ... to POSITIONS: of the numbers at that
    position in their answer, over the parsed pairs. mae: unweighted mean of these over all positions, NaN where one has
    no parsed pair. unparsable: share of the predictions with other positions or names than the answer has. count is N.

    ValueError: lengths differ, or an answer is no list of numbers.
    """
    lists = [*zip(map(read_list, predictions), map(read_list, answers), strict=True)]
    valid, pairs = np.zeros(len(lists), dtype=bool), list[tuple[int, int, Decimal | None, Decimal]]()
    for row, (prediction, answer) in enumerate(lists):
        if answer is None:
            raise ValueError(f"an answer is no list of numbers: {answers[row]!r}")
        valid[row] = prediction is not None and prediction.keys() == answer.keys()
        predicted = prediction if prediction and valid[row] else {}
        pairs += [(row, at, predicted.get(name), value) for at, (name, value) in enumerate(answer.items(), 1)]
    rows, positions, numbers, values = map(list, zip(*pairs, strict=True)) if pairs else ([], [], [], [])
    compared, place = compare_exactly(numbers, values), np.array(positions)
    correct = np.bincount(np.array(rows, dtype=np.intp), weights=~compared.correct, minlength=len(lists)) == 0
    errors = {at: _mean(compared.error[compared.valid & (place == at)]) for at in sorted({*positions})}
    shares = {"unparsable": _mean(~valid), "count": float(len(lists))}
    metrics = {"accuracy": _mean(correct), "mae": _mean(np.array([*errors.values()])), **shares}
    return metrics | {f"mae/{at}": error for at, error in errors.items() if at <= POSITIONS}, correct


def _mean(values: NDArray, average: Callable[[NDArray], Any] = np.mean) -> float:
    return float(average(values)) if len(values) else math.nan


def _r2(error: NDArray, answer: NDArray, prediction: Sequence[Any] | NDArray = ()) -> float:
    """R² of floats by their errors, and of decimals by their differences from the predictions."""
    if len(answer) == 0 or answer.min() == answer.max():
        return math.nan
    if answer.dtype == object:
        deviations, unit = _centered(answer)
        differences = (WIDE.subtract(p, a) for p, a in zip(prediction, answer, strict=True))
        error = np.array([float(WIDE.divide(difference, unit)) for difference in differences])
    else:
        deviations = answer - answer.mean()
    return float(1 - np.sum(error**2) / np.sum(deviations**2))


def _centered(values: NDArray) -> tuple[NDArray, Decimal]:
    """Deviations of N decimals from their mean, in units of the largest, and that; for float64 they may be too near."""
    gaps = [WIDE.subtract(value, values[0]) for value in values]
    mean = WIDE.divide(reduce(WIDE.add, gaps), Decimal(len(gaps)))
    deviations = [WIDE.subtract(gap, mean) for gap in gaps]
    largest = max(map(abs, deviations))
    return np.array([float(WIDE.divide(deviation, largest)) for deviation in deviations]), largest


def _pearson(x: NDArray, y: NDArray, short: float) -> float:
    if len(x) < 2:
        return short
    if x.min() == x.max() or y.min() == y.max():
        return math.nan
    if x.dtype != object and not (np.isfinite(x).all() and np.isfinite(y).all()):
        return math.nan
    return float(np.clip(np.dot(_standardize(x), _standardize(y)), -1.0, 1.0))


def _standardize(x: NDArray) -> NDArray:
    if x.dtype == object:
        x, _ = _centered(x)
    else:
        # Scaled before and after centring, so that squares of values near 1e308 or 1e-308 neither overflow nor vanish.
        x = x / np.abs(x).max()
        x = x - x.mean()
        x = x / np.abs(x).max()
    return x / np.sqrt(np.dot(x, x))


def _ranks(x: NDArray) -> NDArray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _mean_over_cells(
    values: NDArray, used: NDArray[np.bool_], nonzero: NDArray[np.bool_], groups: Sequence[str | None] | None
) -> float:
    codes: dict[str | None, int] = {}
    cell = np.array([codes.setdefault(group, len(codes)) for group in groups or [None] * len(values)], dtype=np.intp)
    present = np.bincount(cell[nonzero], minlength=len(codes)) > 0
    sums = np.bincount(cell[used], weights=values[used], minlength=len(codes))
    return _mean(sums[present] / np.bincount(cell[used], minlength=len(codes))[present])


def crps(values: ArrayLike, shares: ArrayLike, labels: Sequence[float]) -> float:
    """The continuous ranked probability score of a distribution on V ascending values against L observed labels.

    The integral of (F - G)^2, where F is the distribution's CDF and G the CDF of the labels, 1/L for each. For
    X, X' from F and Y, Y' from G that is E|X - Y| - E|X - X'|/2 - E|Y - Y'|/2. In the unit of the labels.
    """
    points = np.concatenate([np.asarray(values, np.float64), np.asarray(labels, np.float64)])
    steps = np.concatenate([np.asarray(shares, np.float64), np.full(len(labels), -1 / len(labels))])
    order = np.argsort(points, kind="stable")
    gaps = np.diff(points[order])
    return float(np.sum(np.cumsum(steps[order])[:-1] ** 2 * gaps))


def constant_baselines(train_targets: Iterable[str]) -> dict[str, str]:
    """Mode, median and mean of the training targets as decimal strings, computed exactly on decimals.

    Among equally frequent values the smallest is the mode. For an even count the median is the mean of the two middle
    values. The mean is rounded to 20 significant digits. ValueError: a target without a number.
    """
    counts: Counter[Decimal] = Counter()
    for text, count in Counter(train_targets).items():
        value = get_rule("default").extract(text)
        if value is None:
            raise ValueError(f"training target {text!r} holds no number: constants exist for numeric data sets only")
        counts[value] += count
    if not counts:
        raise ValueError("no training targets: constants need at least one")
    with localcontext(prec=50) as context:  # exact for sums of millions of 21-digit targets
        middle = median(counts.elements())
        total = sum(value * count for value, count in counts.items())
        context.prec = 20  # more than float64
        mean = total / counts.total()
    # The first of equal counts, hence the smallest value.
    constants = (max(sorted(counts), key=counts.__getitem__), middle, Decimal(mean))
    return dict(zip(CONSTANTS, map(format_number, constants), strict=True))
