"""The rules that turn texts into numbers and compare these with answers, each with a name.

Whoever changes a rule, such as the default one (``ntl.numbers.answers``), raises its version in
``ntl.evaluation.metrics``.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ntl.evaluation.metrics import RULE_OPTIONS
from ntl.numbers import last_number_paper, signed_log
from ntl.numbers.answers import find_answer

PAPER_CLIP = 1e10  # original code: predictions are clipped to ±1e10, answers are not
# An operation of `decimal` is exact before it is rounded to the precision of the context, so 50 digits are enough for
# the difference of numbers of any length. The number grammar keeps exponents well within the context's range.
WIDE = Context(prec=50)
_HUNDRED = Decimal(100)
_NEAR = 1e-3  # of two logs; ours: any that leaves float64 enough digits


class Pairs(NamedTuple):
    """N compared examples. All arrays are (N,); every float array is NaN where `valid` is False, except `log_answer`.

    valid: bool, the prediction was parsed. correct, within: bool, equal, and within 1% of the answer (False where
    invalid). nonzero: bool, the answer is not 0. prediction, answer: decimals, None where invalid; by the paper's rule
    floats. error: |prediction - answer|. relative: 100 |prediction - answer| / |answer| in percent, NaN also where the
    answer is 0. log_error: difference of the signed log10. log_answer: signed log10 of the answer, less a constant. An
    error beyond float64 is inf, its signed log stays finite.
    """

    valid: NDArray
    correct: NDArray
    within: NDArray
    nonzero: NDArray
    prediction: NDArray
    answer: NDArray
    log_error: NDArray
    log_answer: NDArray
    error: NDArray
    relative: NDArray

    def take(self, chosen: NDArray | Sequence[int]) -> "Pairs":
        """The examples of a boolean mask (N,) or of a list of positions."""
        return Pairs(*(column[chosen] for column in self))


class AnswerRule(NamedTuple):
    """How a text becomes a number (None where it holds no answer), and how numbers are compared.

    short_correlation: what Pearson and Spearman are with fewer than two valid pairs.
    """

    name: str
    extract: Callable[[str], Decimal | None]
    compare: Callable[[Sequence[Decimal | None], Sequence[Decimal]], Pairs]
    short_correlation: float


def get_rule(name: str) -> AnswerRule:
    """The rule of that name; options follow it, as in "default+magnitudes+percent". ValueError names what exists."""
    rule, *options = name.split("+")
    if rule not in RULES or not {*RULE_OPTIONS}.issuperset(options) or (options and rule != "default"):
        choices = f"{', '.join(RULES)}; default may be followed by +{' and +'.join(RULE_OPTIONS)}"
        raise ValueError(f"unknown answer rule {name!r}: choose one of {choices}")
    if not options:
        return RULES[rule]
    return RULES[rule]._replace(name=name, extract=partial(find_answer, **dict.fromkeys(options, True)))


def extract_answer(text: str, rule: str = "default") -> Decimal | None:
    r"""The number that a generated text gives as its answer, or None.

    "default": the whole text if it is one number; else the first number after the first "####"; else the last one of
    the last "\boxed{...}"; else (also where nothing follows the mark) the last one of the text, as
    ``ntl.numbers.answers.find_values`` reads them. "default+magnitudes" and "default+percent" are its options.
    "paper": the last match of the original pattern, through a float (so 1,234 is 234); the metric clips, not the parse.
    """
    return get_rule(rule).extract(text)


def compare_exactly(predictions: Sequence[Decimal | None], answers: Sequence[Decimal]) -> Pairs:
    """Compare in decimal arithmetic; only results are float64. None is an unparsable prediction."""
    correct, within = np.zeros((2, len(answers)), dtype=bool)
    error, relative = np.full((2, len(answers)), np.nan)
    for index, (prediction, answer) in enumerate(zip(predictions, answers, strict=True)):
        if prediction is None:
            continue
        distance = WIDE.abs(WIDE.subtract(prediction, answer))
        hundredfold = WIDE.multiply(distance, _HUNDRED)
        correct[index] = prediction == answer
        within[index] = hundredfold <= answer.copy_abs()
        error[index] = float(distance)
        if answer:
            relative[index] = float(WIDE.divide(hundredfold, answer.copy_abs()))
    valid, nonzero = np.array([value is not None for value in predictions], dtype=bool), np.array(answers, dtype=bool)
    exact, truth = (np.array(row, dtype=object) for row in (predictions, answers))
    log_error, log_answer = _log_gaps(predictions, answers), _log_gaps(answers, [*answers[:1]] * len(answers))
    return Pairs(valid, correct, within, nonzero, exact, truth, log_error, log_answer, error, relative)


def compare_as_paper(predictions: Sequence[Decimal | None], answers: Sequence[Decimal]) -> Pairs:
    """Compare in float64 as the original code: predictions clipped to ±1e10, answers not, equality by np.isclose.

    The asymmetric clipping makes every correct prediction above 1e10 wrong; the paper's numbers were computed with it.
    """
    answer = _floats(answers)
    with np.errstate(all="ignore"):
        prediction = np.clip(_floats(predictions), -PAPER_CLIP, PAPER_CLIP)
        error, nonzero = np.abs(prediction - answer), answer != 0
        correct = np.isclose(prediction, answer)  # original code: with its defaults
        within, relative = 100 * error <= np.abs(answer), np.where(nonzero, 100 * error / np.abs(answer), np.nan)
        logs = signed_log(prediction) - signed_log(answer), signed_log(answer)
    return Pairs(~np.isnan(prediction), correct, within, nonzero, prediction, answer, *logs, error, relative)


def _floats(values: Sequence[Decimal | None]) -> NDArray:
    return np.array([math.nan if value is None else float(value) for value in values], dtype=np.float64)


def _log(values: Sequence[Decimal | None]) -> NDArray:
    """Signed log of values; of those beyond float64, from their decimals."""
    floats = _floats(values)
    logs = signed_log(floats)
    for index in map(int, np.flatnonzero(np.isinf(floats))):
        decimal: Any = values[index]  # never None: an unparsable prediction is NaN
        logs[index] = np.copysign(float(WIDE.log10(decimal.copy_abs())), floats[index])
    return logs


def _log_gaps(values: Sequence[Decimal | None], others: Sequence[Decimal]) -> NDArray:
    """Differences of the signed logs; of values near each other, whose logs may be equal in float64, by log1p."""
    gaps = _log(values) - _log(others)
    for index in map(int, np.flatnonzero(np.abs(gaps) < _NEAR)):
        value, other = cast(Decimal, values[index]), others[index]
        if value.is_signed() == other.is_signed():
            ratio = WIDE.divide(WIDE.subtract(value, other), WIDE.add(other.copy_abs(), 1))
            gaps[index] = math.log1p(-ratio if other.is_signed() else ratio) / math.log(10) * (-1) ** other.is_signed()
    return gaps


RULES: dict[str, AnswerRule] = {
    "default": AnswerRule("default", find_answer, compare_exactly, math.nan),
    "paper": AnswerRule("paper", last_number_paper, compare_as_paper, 0.0),
}
