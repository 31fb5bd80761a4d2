"""Predictions and answers compared value by value: exactly on decimals, or in float64 as the original code does."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

from ntl.numbers import signed_log

# An operation of `decimal` is exact before it is rounded to the precision of the context, so 50 digits are enough for
# the difference of numbers of any length. The number grammar keeps exponents well within the context's range.
_WIDE = Context(prec=50)
_HUNDRED = Decimal(100)

PAPER_CLIP = 1e10  # original code: predictions are clipped to ±1e10, answers are not
PAPER_RTOL = 1e-5  # original code: np.isclose with its defaults
PAPER_ATOL = 1e-8


@dataclass(frozen=True, slots=True)
class Pairs:
    """N compared examples. All arrays are (N,); every float array is NaN where `valid` is False, except `answer`.

    valid: the prediction was parsed. correct, within: equal, and within 1% of the answer (both False where invalid).
    prediction, answer: values; log_prediction, log_answer: signed log10. error: |prediction - answer|.
    relative: 100 |prediction - answer| / |answer| in percent, NaN also where the answer is 0.
    nonzero: the answer is not 0. A value beyond float64 is ±inf, its signed log stays finite.
    """

    valid: NDArray[np.bool_]
    correct: NDArray[np.bool_]
    within: NDArray[np.bool_]
    nonzero: NDArray[np.bool_]
    prediction: NDArray[np.float64]
    answer: NDArray[np.float64]
    log_prediction: NDArray[np.float64]
    log_answer: NDArray[np.float64]
    error: NDArray[np.float64]
    relative: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.valid)

    def take(self, chosen: NDArray[np.bool_] | Sequence[int]) -> "Pairs":
        """The examples of a boolean mask (N,) or of a list of positions."""
        return Pairs(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


def compare_exactly(predictions: Sequence[Decimal | None], answers: Sequence[Decimal]) -> Pairs:
    """Compare in decimal arithmetic; only results are float64. None is an unparsable prediction."""
    size = len(answers)
    valid, correct, within = (np.zeros(size, dtype=bool) for _ in range(3))
    value, error, relative = (np.full(size, np.nan) for _ in range(3))
    for index, (prediction, answer) in enumerate(zip(predictions, answers, strict=True)):
        if prediction is None:
            continue
        distance = _WIDE.abs(_WIDE.subtract(prediction, answer))
        valid[index] = True
        correct[index] = prediction == answer
        within[index] = _WIDE.multiply(distance, _HUNDRED) <= answer.copy_abs()
        value[index] = float(prediction)
        error[index] = float(distance)
        if answer:
            relative[index] = float(_WIDE.divide(_WIDE.multiply(distance, _HUNDRED), answer.copy_abs()))
    truth = np.fromiter(map(float, answers), dtype=np.float64, count=size)
    return Pairs(
        valid=valid,
        correct=correct,
        within=within,
        nonzero=np.fromiter(map(bool, answers), dtype=bool, count=size),
        prediction=value,
        answer=truth,
        log_prediction=_log(value, predictions),
        log_answer=_log(truth, answers),
        error=error,
        relative=relative,
    )


def compare_as_paper(predictions: Sequence[Decimal | None], answers: Sequence[Decimal]) -> Pairs:
    """Compare in float64 as the original code: predictions clipped to ±1e10, answers not, equality by np.isclose.

    The asymmetric clipping makes every correct prediction above 1e10 wrong; it is kept because the paper's numbers were
    computed with it.
    """
    valid = np.array([prediction is not None for prediction in predictions], dtype=bool)
    raw = np.array(
        [np.nan if prediction is None else float(prediction) for prediction in predictions], dtype=np.float64
    )
    answer = np.array([float(value) for value in answers], dtype=np.float64)
    nonzero = answer != 0
    with np.errstate(all="ignore"):
        prediction = np.clip(raw, -PAPER_CLIP, PAPER_CLIP)
        error = np.abs(prediction - answer)
        relative = np.where(nonzero, 100 * error / np.abs(answer), np.nan)
        return Pairs(
            valid=valid,
            correct=np.isclose(prediction, answer, rtol=PAPER_RTOL, atol=PAPER_ATOL),
            within=100 * error <= np.abs(answer),
            nonzero=nonzero,
            prediction=prediction,
            answer=answer,
            log_prediction=signed_log(prediction),
            log_answer=signed_log(answer),
            error=error,
            relative=relative,
        )


def _log(values: NDArray[np.float64], exact: Sequence[Decimal | None]) -> NDArray[np.float64]:
    """Signed log of float64 values; of those beyond float64, from their decimals."""
    logs = signed_log(values)
    for index in map(int, np.flatnonzero(np.isinf(values))):
        decimal = exact[index]
        assert decimal is not None  # an unparsable prediction is NaN
        logs[index] = np.copysign(float(_WIDE.log10(decimal.copy_abs())), values[index])
    return logs
