import math
from itertools import product
from operator import mul
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.results import summarize
from ntl.results.effects import holm, sign_flip_p


def test_interval_of_four_values_by_hand() -> None:
    # mean 2.5, sd sqrt(5/3), t(3) at 97.5 % = 3.18245 (printed tables)
    summary = summarize([1.0, 2.0, 3.0, 4.0])
    half = 3.18244630528 * math.sqrt(5 / 3) / 2
    assert summary.sd == pytest.approx(math.sqrt(5 / 3))
    assert (summary.low, summary.high) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-9)


def test_undefined_values_are_counted() -> None:
    summary = summarize([1.0, None, math.nan, math.inf])
    assert (summary.n, summary.undefined, summary.mean) == (1, 3, 1.0)
    assert summarize([None]).mean is None
    assert summarize([]).n == 0
    summary = summarize([2.5])
    assert (summary.n, summary.mean, summary.sd, summary.low, summary.high) == (1, 2.5, None, None, None)


def test_sign_flips_by_hand() -> None:
    assert sign_flip_p((1.0, 2.0, 3.0)) == 0.25  # 6 and -6 of eight sums
    assert sign_flip_p((1.0, 1.0, 1.0, -1.0)) == 0.625  # |sum| >= 2 in 10 of 16: not in the 6 that are 0
    assert sign_flip_p((0.1, 0.1, 0.1, 0.1, -0.1)) == 0.375  # 1 + 5 + 5 + 1 of 32, ties in floating point
    assert sign_flip_p((1.0,) * 16) == 2.0**-15


@given(st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=9))
def test_sign_flips_are_those_of_every_sign(differences: list[float]) -> None:
    sums = [sum(map(mul, signs, differences)) for signs in product((1, -1), repeat=len(differences))]
    expected = fmean(abs(each) >= abs(sum(differences)) for each in sums)
    assert sign_flip_p(tuple(differences)) == pytest.approx(expected, abs=1e-12)
    assert 2.0 ** (1 - len(differences)) <= sign_flip_p(tuple(differences)) <= 1


def test_holm_by_hand() -> None:
    # Sorted .01, .02, .04, .5: times 4, 3, 2, 1 gives .04, .06, .08, .5.
    assert holm([0.04, 0.01, 0.5, 0.02]) == pytest.approx([0.08, 0.04, 0.5, 0.06])
    # .03 times 2 is below .02 times 3, which came before: never below.
    assert holm([0.02, 0.03, 0.025]) == pytest.approx([0.06, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
