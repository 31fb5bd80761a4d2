"""An interval around an answer that holds the true one with a chosen probability: split conformal prediction.

Of n answers that the model has not learned from, each has a score: the error |prediction - answer|, divided by the
spread of the model's own distribution where it gives one. If a new answer is exchangeable with these, its score is at
most the k-th smallest of theirs, k = ceil((n + 1) level), with a probability of at least ``level``, and of at most
level + 1 / (n + 1) where no two scores are equal. Nothing is assumed of the model or of its errors. The probability is
one over validation and test answers together, not one for each question. An answer without a number has the score inf.
Answers to one question are not exchangeable with one to another: of each question a single answer counts.

On the scale "log" the error is |log prediction - log answer|, so that an interval is from prediction / r to
prediction * r. Answers are then above 0; a prediction that is not has the score inf, and no interval.

Lei et al., Distribution-free predictive inference for regression, 2018; Papadopoulos et al., Normalized
nonconformity measures for regression conformal prediction, 2008.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntl.evaluation.rules import Pairs

LEVEL = Fraction(9, 10)  # of the metrics coverage_90 and width_90
Spreads = Sequence[float | None]


def least_answers(level: float | Fraction) -> int:
    """The fewest answers with which an interval of this level, above 0 and below 1, is finite."""
    exact = Fraction(str(level))  # as it is written: 0.9 in binary is a little more than nine tenths
    return math.ceil(exact / (1 - exact))


def one_of_each(questions: Sequence[str]) -> list[int]:
    """The index of one row of each different question, in order: any of its rows alike, at each call the same."""
    shuffled = random.Random(0).sample(range(len(questions)), len(questions))
    return sorted({questions[index]: index for index in shuffled}.values())


def conformal_quantile(scores: ArrayLike, level: float | Fraction) -> float:
    """The k-th smallest of the scores (n,). ValueError: a level outside (0, 1), or too few scores for it."""
    if not 0 < level < 1:  # nan is not
        raise ValueError(f"the level of an interval is above 0 and below 1, not {float(level)}")
    ascending, exact = np.sort(np.asarray(scores, dtype=np.float64)), Fraction(str(level))
    if len(ascending) < (least := least_answers(level)):
        raise ValueError(
            f"an interval of level {float(level)} needs {least:,} validation answers or more, to different "
            f"questions, and there are {len(ascending):,}"
        )
    return float(ascending[math.ceil((len(ascending) + 1) * exact) - 1])


def errors_of(pairs: Pairs, scale: str) -> NDArray[np.float64]:
    """The errors (n,) on the scale "linear" or "log": NaN where there is no number, or in log none above 0."""
    if scale == "linear":
        return pairs.error
    values = np.array([pairs.prediction, pairs.answer], dtype=np.float64)
    with np.errstate(invalid="ignore"):  # both are inf
        return np.abs(np.subtract(*np.log(np.where(values > 0, values, np.nan))))


@dataclass(frozen=True)
class Calibration:
    """Scores of validation answers.

    ``least_spread`` is the smallest spread that an error is divided by, in the unit of the answers; None: errors are
    not divided. Errors (n,) are NaN where there is no number, spreads (n,) None where they are unknown.
    """

    scores: Sequence[float]
    least_spread: float | None = None
    scale: str = "linear"

    @classmethod
    def from_errors(
        cls, errors: ArrayLike, spreads: Spreads = (), least_spread: float | None = None, scale: str = "linear"
    ) -> Self:
        """From the errors (n,) on this scale, as ``errors_of`` has them, and the spreads (n,)."""
        return cls(sorted(cls([], least_spread).scores_of(errors, spreads).tolist()), least_spread, scale)

    @classmethod
    def from_header(cls, stored: Mapping[str, Any]) -> Self:
        """As a predictions file has it: null is inf."""
        scores = [math.inf if score is None else float(score) for score in stored["scores"]]
        return cls(scores, stored["least_spread"], stored.get("scale", "linear"))

    @property
    def header(self) -> dict[str, Any]:
        """What ``from_header`` reads."""
        scores = [score if math.isfinite(score) else None for score in self.scores]
        header = {"scores": scores, "least_spread": self.least_spread, "one_of_each": True}
        return header if self.scale == "linear" else header | {"scale": self.scale}

    def units(self, spreads: Spreads, count: int) -> NDArray[np.float64]:
        """What an error is divided by, (count,)."""
        if self.least_spread is None:
            return np.ones(count)
        return np.maximum(np.array(spreads, dtype=np.float64), self.least_spread)

    def scores_of(self, errors: ArrayLike, spreads: Spreads = ()) -> NDArray[np.float64]:
        """The scores (n,) of answers."""
        errors = np.asarray(errors, dtype=np.float64)
        return np.nan_to_num(errors / self.units(spreads, len(errors)), nan=np.inf, posinf=np.inf)

    def radius(self, level: float, spread: float | None = None) -> float:
        """Half the width of an interval, of logarithms if the scale is log. ValueError of ``conformal_quantile``."""
        return conformal_quantile(self.scores, level) * float(self.units([spread], 1)[0])

    @np.errstate(over="ignore")
    def interval(self, level: float, prediction: float, spread: float | None = None) -> list[float]:
        """Both ends; empty where float64 cannot hold them or, in log, the prediction is not above 0."""
        radius = self.radius(level, spread)
        ends = [prediction - radius, prediction + radius]
        if self.scale == "log":
            factor = float(np.exp(radius))
            ends = [prediction / factor, prediction * factor] if prediction > 0 else []
        return ends if all(map(math.isfinite, ends)) else []

    @np.errstate(over="ignore")
    def metrics(self, errors: ArrayLike, spreads: Spreads = (), predictions: Any = ()) -> dict[str, float]:
        """Of test answers: the share whose interval of level 0.9 holds the true answer, and the mean width.

        An answer without an interval is not covered, and has no width. NaN where there are too few validation answers.
        ``predictions`` (n,), None where there is no number, are for log alone: widths are in their unit.
        """
        errors = np.asarray(errors, dtype=np.float64)
        try:
            quantile = conformal_quantile(self.scores, LEVEL)
        except ValueError:
            return {"coverage_90": math.nan, "width_90": math.nan}
        has_number = ~np.isnan(errors)
        covered = (self.scores_of(errors, spreads) <= quantile) & has_number
        widths = 2 * quantile * self.units(spreads, len(errors))[has_number]
        if self.scale == "log":
            values = np.array(predictions, dtype=np.float64)
            widths = 2 * np.sinh(quantile) * values[values > 0]
        width = float(np.mean(widths)) if len(widths) else math.nan
        return {"coverage_90": float(np.mean(covered)), "width_90": width}
