import math
from dataclasses import replace
from itertools import product
from operator import mul
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.results import RunRecord, pack_bits, summarize
from ntl.results.effects import accuracy_interval, holm, sign_flip_p


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


def test_correct_answers_are_paired_by_their_examples() -> None:
    bits = [[True, False] * 10, [True] * 20]
    base, other = (
        RunRecord(
            id="r",
            overrides=[],
            config={},
            seed=1,
            metrics={"test/count": 20},
            correct={"test": pack_bits(each)},
            ids_sha256={"test": "0"},
        )
        for each in bits
    )
    # Half of 20 examples differ: binomial(20, 0.5) / 20 has the 2.5 % and 97.5 % points 6 / 20 and 14 / 20.
    assert accuracy_interval("test", base, other) == pytest.approx((0.3, 0.7))
    lost: tuple[dict[str, Any], ...] = ({"ids_sha256": {"test": "1"}}, {"correct": {}}, {"metrics": {}})
    assert [accuracy_interval("test", base, replace(other, **each)) for each in lost] == [None] * 3
    assert accuracy_interval("validation", base, other) is None
