"""Effects of a row over another, by hand: t(2) = 4.302653 and t(5) = 2.570582 of the 95% interval."""

import math
from itertools import product
from operator import mul
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ntl.results.effects import Effect, Outcome, beats, effect, holm, sign_flip_p, summarize
from ntl.results.spec import ColumnSpec

ERROR, RATE = ColumnSpec("test/mae", "MAE"), ColumnSpec("test/accuracy", "accuracy")


def seeds(*values: float | None) -> dict[int, float | None]:
    return dict(enumerate(values, start=1))


def found(column: ColumnSpec, base: tuple[float | None, ...], other: tuple[float | None, ...]) -> Effect:
    result = effect(column, [seeds(*base)], [seeds(*other)])
    assert result is not None
    return result


def test_errors_are_compared_by_their_ratio() -> None:
    # Log ratios 0.1, 0.2, 0.3: 0.2 ± 4.302653 · 0.1 / √3 = 0.2 ± 0.248413.
    worse = found(ERROR, (1.0, 10.0, 100.0), tuple(base * math.exp(d) for base, d in ((1, 0.1), (10, 0.2), (100, 0.3))))
    assert worse.text == "+22.1% [-4.7, +56.6], n = 3, worse in 3 of 3"
    assert worse.gain == pytest.approx((-0.448413, 0.048413), abs=1e-6)
    assert worse.power == "; half width 28%"
    assert worse.p(says_better=True) == pytest.approx(stats.ttest_1samp([0.1, 0.2, 0.3], 0).pvalue)
    # That nothing is lost is tested against a loss of the band, 5%.
    assert worse.p(says_better=False) == pytest.approx(stats.ttest_1samp([0.1, 0.2, 0.3], math.log(1.05)).pvalue)
    assert found(ERROR, (2.0, 4.0), (1.0, 8.0)).text == "-50.0%, +100.0%, n = 2"


def test_rates_are_compared_by_their_difference() -> None:
    # Six equal gains but one: mean 0.11, sd 0.0244949, half width 2.570582 · 0.01 = 0.0257.
    better = found(RATE, (0.5,) * 6, (0.6, 0.6, 0.6, 0.6, 0.6, 0.66))
    assert better.text == "+0.110 [+0.084, +0.136], n = 6, better in 6 of 6, exact p = 0.031"
    assert better.band == pytest.approx(0.025)


def test_groups_are_averaged_within_a_seed() -> None:
    base = [seeds(1.0, 1.0, 1.0), seeds(1.0, 1.0, 1.0, 5.0)]
    other = [seeds(2.0, 1.0, 4.0), seeds(0.5, 4.0, 1.0)]
    both = effect(ERROR, base, other)
    assert both is not None
    assert both.summary.values == pytest.approx((0.0, math.log(2), math.log(2)))


def test_what_is_undefined_or_not_there() -> None:
    assert effect(ERROR, [seeds(1.0)], [{2: 1.0}]) is None
    for other in ((1.0, None, 1.0), (1.0, 0.0, 1.0)):  # an error of 0 has no logarithm
        undefined = found(ERROR, (1.0, 1.0, 1.0), other)
        assert undefined.text == "undefined for 1 seed"
        assert undefined.outcome(says_better=True) is Outcome.inconclusive


@pytest.mark.parametrize(
    ("ratios", "better", "no_worse"),
    [
        ((0.80, 0.81, 0.79), Outcome.supported, Outcome.supported),
        ((1.20, 1.21, 1.19), Outcome.contradicted, Outcome.contradicted),
        ((0.99, 0.98, 0.98), Outcome.equivalent, Outcome.supported),  # a gain, but too small to matter
        ((0.5, 0.9, 0.9), Outcome.inconclusive, Outcome.inconclusive),
    ],
)
def test_the_outcome(ratios: tuple[float, ...], better: Outcome, no_worse: Outcome) -> None:
    result = found(ERROR, (1.0, 1.0, 1.0), ratios)
    assert (result.outcome(says_better=True), result.outcome(says_better=False)) == (better, no_worse)


def test_a_baseline_beats_a_heuristic_with_its_whole_interval() -> None:
    assert beats(ERROR, [seeds(1.0, 1.1, 0.9)], 2.0)
    assert not beats(ERROR, [seeds(1.0, 1.1, 0.9)], 1.1)  # the mean does, the interval does not
    assert not beats(ERROR, [seeds(1.0, 1.1)], 2.0)  # two seeds have no interval
    assert beats(RATE, [seeds(0.5, 0.5, 0.5)], 0.4)
    assert not beats(RATE, [seeds(0.5, 0.5, 0.5)], 0.5)


def test_undefined_values_are_counted() -> None:
    summary = summarize([1.0, None, math.nan, math.inf])
    assert (summary.n, summary.undefined, summary.mean, summary.sd) == (1, 3, 1.0, None)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=9))
def test_sign_flips_are_those_of_every_sign(tenths: list[int]) -> None:
    """Also where sums that are equal differ in their last digits, as tenths do."""
    sums = [sum(map(mul, signs, tenths)) for signs in product((1, -1), repeat=len(tenths))]
    expected = fmean(abs(each) >= abs(sum(tenths)) for each in sums)
    p = sign_flip_p(tuple(tenth / 10 for tenth in tenths))
    assert p == pytest.approx(expected, abs=1e-12)
    assert 2.0 ** (1 - len(tenths)) <= p <= 1
    assert sign_flip_p((1.0,) * 16) == 2.0**-15


def test_holm_by_hand() -> None:
    # Sorted .01, .02, .04, .5: times 4, 3, 2, 1 gives .04, .06, .08, .5.
    assert holm([0.04, 0.01, 0.5, 0.02]) == pytest.approx([0.08, 0.04, 0.5, 0.06])
    # .03 times 2 is below .02 times 3, which came before: never below.
    assert holm([0.02, 0.03, 0.025]) == pytest.approx([0.06, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
