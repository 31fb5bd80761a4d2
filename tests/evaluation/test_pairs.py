import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.evaluation.pairs import compare_as_paper, compare_exactly

BOTH = [compare_exactly, compare_as_paper]


def numbers(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


def answers(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


def same(found: np.ndarray, expected: list[float]) -> bool:
    return found.tolist() == pytest.approx(expected, rel=1e-12, nan_ok=True)


NAN = math.nan


@pytest.mark.parametrize("compare", BOTH)
def test_every_field_by_hand(compare) -> None:
    pairs = compare(numbers("-1", "9", "101", "5", None), answers("-4", "9", "100", "0", "7"))
    assert len(pairs) == 5
    assert pairs.valid.tolist() == [True, True, True, True, False]
    assert pairs.correct.tolist() == [False, True, False, False, False]
    # 101 is exactly 1% above 100; an answer of 0 leaves no room.
    assert pairs.within.tolist() == [False, True, True, False, False]
    assert pairs.nonzero.tolist() == [True, True, True, False, True]
    assert same(pairs.prediction, [-1, 9, 101, 5, NAN])
    assert pairs.answer.tolist() == [-4, 9, 100, 0, 7]
    assert same(pairs.error, [3, 0, 1, 5, NAN])
    assert same(pairs.relative, [75, 0, 1, NAN, NAN])
    # sign(x) log10(|x| + 1)
    assert same(pairs.log_prediction, [-math.log10(2), 1, math.log10(102), math.log10(6), NAN])
    assert same(pairs.log_answer, [-math.log10(5), 1, math.log10(101), 0, math.log10(8)])


@pytest.mark.parametrize("compare", BOTH)
def test_no_pairs(compare) -> None:
    assert len(compare([], [])) == 0


@pytest.mark.parametrize(("chosen", "expected"), [([3, 0], [NAN, 1]), (np.array([True, False, False, True]), [1, NAN])])
def test_take(chosen, expected: list[float]) -> None:
    pairs = compare_exactly(numbers("1", "2", "3", None), answers("1", "1", "1", "1")).take(chosen)
    assert same(pairs.prediction, expected)
    assert pairs.valid.tolist() == [not math.isnan(value) for value in expected]
    assert same(pairs.relative, [100 * (value - 1) for value in expected])


def test_one_percent_is_exact() -> None:
    texts = ("0.101", "0.1010000000000000000000001", "-101", "-99", "-98.999999999999999999999")
    pairs = compare_exactly(numbers(*texts), answers("0.1", "0.1", "-100", "-100", "-100"))
    assert pairs.within.tolist() == [True, False, True, True, False]


def test_digits_beyond_a_float_count() -> None:
    pairs = compare_exactly(numbers("12345678901234567891", "0.30"), answers("12345678901234567890", "0.3"))
    assert pairs.correct.tolist() == [False, True]
    assert pairs.error.tolist() == [1.0, 0.0]


def test_what_exceeds_float64_is_infinite_with_a_finite_logarithm() -> None:
    pairs = compare_exactly(numbers("1e400", "-1e400", "1"), answers("1", "1", "1e500"))
    assert pairs.prediction.tolist() == [math.inf, -math.inf, 1]
    assert pairs.answer.tolist() == [1, 1, math.inf]
    assert pairs.error.tolist() == [math.inf, math.inf, math.inf]
    assert same(pairs.log_prediction, [400, -400, math.log10(2)])
    assert same(pairs.log_answer, [math.log10(2), math.log10(2), 500])
    assert pairs.relative[2] == 100.0  # |1 - 1e500| of 1e500


def test_the_paper_clips_predictions_but_not_answers() -> None:
    pairs = compare_as_paper(numbers("2e10", "-2e10", "2e10"), answers("2e10", "-2e10", "1e10"))
    assert pairs.prediction.tolist() == [1e10, -1e10, 1e10]
    assert pairs.correct.tolist() == [False, False, True]
    assert pairs.error.tolist() == [1e10, 1e10, 0.0]
    assert pairs.relative.tolist() == [50.0, 50.0, 0.0]
    assert compare_exactly(numbers("2e10"), answers("2e10")).correct.tolist() == [True]


def test_the_paper_calls_equal_what_isclose_does() -> None:
    # np.isclose: |p - l| <= 1e-8 + 1e-5 |l|
    near, far = numbers("100000.9", "0.000000009"), numbers("100001.1", "0.00000002")
    assert compare_as_paper(near, answers("100000", "0")).correct.tolist() == [True, True]
    assert compare_as_paper(far, answers("100000", "0")).correct.tolist() == [False, False]
    assert compare_exactly(near, answers("100000", "0")).correct.tolist() == [False, False]


MODERATE = st.decimals(-(10**9), 10**9, allow_nan=False, places=3)


@given(st.lists(st.tuples(st.none() | MODERATE, MODERATE), min_size=1, max_size=8))
def test_both_rules_agree_on_numbers_that_a_float_holds(rows: list[tuple[Decimal | None, Decimal]]) -> None:
    predictions, truth = [list(column) for column in zip(*rows, strict=True)]
    exact, paper = compare_exactly(predictions, truth), compare_as_paper(predictions, truth)
    assert exact.valid.tolist() == paper.valid.tolist() == [value is not None for value in predictions]
    assert exact.nonzero.tolist() == paper.nonzero.tolist()
    assert exact.prediction.tolist() == pytest.approx(paper.prediction.tolist(), nan_ok=True)
    assert exact.log_answer.tolist() == paper.log_answer.tolist()
    # float64 has 1e-7 left at 1e9, which the difference of two such numbers keeps.
    assert exact.error.tolist() == pytest.approx(paper.error.tolist(), abs=1e-6, nan_ok=True)
    assert not (exact.correct & ~paper.correct).any()
