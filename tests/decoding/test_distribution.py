"""Statistics of a distribution over numbers by hand, and what stands for prefixes that were not read on."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.decoding.distribution import NumberDistribution, represent, thin


def of(**masses: float) -> NumberDistribution:
    return NumberDistribution.of({text.replace("_", ""): mass for text, mass in masses.items()})


def test_by_hand() -> None:
    """2, 4 and 10 with 0.1, 0.2 and 0.1: a quarter, a half and a quarter of 0.4."""
    found = NumberDistribution.of({" 10": 0.1, "4": 0.2, "2": 0.1, "-": 0.3}, covered=0.15)
    assert found.values.tolist() == [2, 4, 10]
    assert found.probabilities == pytest.approx([0.1, 0.2, 0.1])
    assert found.shares == pytest.approx([0.25, 0.5, 0.25])
    assert (found.represented, found.covered) == (pytest.approx(0.4), 0.15)
    assert found.moments() == pytest.approx((5, math.sqrt((9 + 2 * 1 + 25) / 4)))
    assert (found.mean, found.median) == (pytest.approx(5), 4)
    shares = (0, 0.1, 0.25, 0.26, 0.5, 0.74, 0.75, 0.76, 1)
    assert [found.quantile(share) for share in shares] == [2, 2, 2, 4, 4, 4, 4, 10, 10]
    assert (found.interval(0.5), found.interval(0.52)) == ((2, 4), (2, 10))
    # E|X - 5| = 3/4 + 1/2 + 5/4; of two such numbers the difference is 2, 6 or 8 with 1/4, 1/4 and 1/8.
    assert found.crps(5) == pytest.approx(2.5 - (2 / 4 + 6 / 4 + 8 / 8) / 2)
    drawn = found.sample(4000, seed=1)
    assert [np.mean(drawn == value) for value in found.values] == pytest.approx(found.shares, abs=0.03)
    assert np.array_equal(drawn, pickle.loads(pickle.dumps(found)).sample(4000, seed=1))
    assert np.array_equal(found.sample(9), found.sample(9, seed=0))
    assert found.interval(0) == (4, 4)
    for share in (1.5, -0.1, math.nan):
        with pytest.raises(ValueError, match=f"^{share}: a share of the probability is from 0 to 1"):
            found.quantile(share)
        with pytest.raises(ValueError, match=f"^{share}: the level of an interval is from 0 to 1"):
            found.interval(share)


def test_texts_of_one_value_are_added_up_and_written_as_the_likeliest() -> None:
    found = NumberDistribution.of({"7": 0.1, "07": 0.2, "7.0": 0.05, "8": 0.3})
    assert (found.values.tolist(), found.texts) == ([7, 8], ["07", "8"])
    assert found.shares == pytest.approx([0.35 / 0.65, 0.3 / 0.65])


def test_tails_are_cut_by_probability_not_by_number() -> None:
    """Of 1, 2, 3 and a billion with 0.1, 0.4, 0.4 and 0.1 a fifth at either end leaves 2 and 3 with 0.3 each."""
    found = of(_1=0.1, _2=0.4, _3=0.4, _1000000000=0.1)
    assert found.moments(0.2) == pytest.approx((2.5, 0.5))
    # 0.05 of the least and of the greatest go, 0.05 of either stay.
    mean = (0.05 * 1 + 0.4 * 2 + 0.4 * 3 + 0.05 * 1e9) / 0.9
    assert found.moments(0.05)[0] == pytest.approx(mean)
    assert found.mean == pytest.approx(0.1 + 0.8 + 1.2 + 1e8)
    assert of(_5=0.7).moments(0.25) == (5, 0)
    assert of(_0=0.4).moments() == (0, 0)


def test_crps_with_a_far_number_of_hardly_any_probability() -> None:
    """Of 1 to 10 with a tenth each: E|X - 5.5| = 2.5 and E|X - X'| = 99/30. A sum of tenths is not quite 1."""
    near = {str(number): 0.1 for number in range(1, 11)}
    for far in ("400000000000000000000", "-400000000000000000000"):
        assert NumberDistribution.of({**near, far: 1e-39}).crps(5.5) == pytest.approx(2.5 - 99 / 60)


def test_without_a_number_there_is_no_statistic() -> None:
    found = NumberDistribution.of({"-": 0.5, "1e400": 0.1})
    assert (found.represented, found.covered, len(found.values)) == (0, 0, 0)
    for ask in (found.moments, lambda: found.median, lambda: found.crps(1), lambda: found.sample(1, 0)):
        with pytest.raises(ValueError, match="the distribution has no number"):
            ask()


MASSES = st.lists(st.floats(0, 1) | st.just(0.0), min_size=1, max_size=40).map(np.array)


def test_what_stands_for_all_by_hand() -> None:
    """Four for 1: 0.5 and 0.25 stand for themselves; c = 0.125 is full, half way, in the third and in the last."""
    places, stands = thin(np.array([0.05, 0.5, 0.0, 0.05, 0.05, 0.25, 0.05, 0.05]), 4)
    assert (places.tolist(), stands.tolist()) == ([1, 3, 5, 6], pytest.approx([0.5, 0.125, 0.25, 0.125]))


@given(MASSES, st.integers(1, 45))
def test_what_stands_for_all_has_the_probability_of_all(masses: np.ndarray, count: int) -> None:
    places, stands = thin(masses, count)
    assert len(places) == min(count, np.count_nonzero(masses))
    assert stands.sum() == pytest.approx(masses.sum())
    assert (stands >= masses[places] * (1 - 1e-12)).all()
    # Between any two places, what stands and what is stood for differ by less than c.
    too_much = np.bincount(places, stands, minlength=len(masses)) - masses
    assert np.abs(too_much.cumsum()).max() <= (stands.min() if len(places) else 0) * (0.5 + 1e-6)


def test_what_was_not_read_goes_on_as_the_nearest_of_its_shape() -> None:
    masses, shapes = np.array([0.3, 0.1, 0.1, 0.1, 0.4, 1e-9, 0.0]), np.array([7, 7, 7, 7, 3, 5, 7])
    read, like = represent(masses, shapes, 3)
    # c = 0.3: 0.4, 0.3 and, of three tenths, the middle one; the shape 5 is too rare to be read.
    assert (read.tolist(), like.tolist()) == ([0, 2, 4], [0, 1, 1, 1, 2, -1, -1])
    # All are read where there are no more, however rare.
    for rare in ([0.004, 0.002], [1e-300, 1e-305]):
        read, like = represent(np.array([1.0, *rare]), np.zeros(3), 3)
        assert (read.tolist(), like.tolist()) == ([0, 1, 2], [0, 1, 2])
    # One more where a shape would have none.
    read, like = represent(np.array([0.6, 0.2, 0.19, 0.01]), np.array([1, 1, 1, 2]), 2)
    assert (read.tolist(), like.tolist()) == ([0, 1, 3], [0, 1, 1, 2])


@given(MASSES, st.integers(1, 45), st.data())
def test_all_go_on_as_one_of_their_shape(masses: np.ndarray, count: int, data: st.DataObject) -> None:
    shapes = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(masses), max_size=len(masses))))
    read, like = represent(masses, shapes, count)
    own = like >= 0
    assert (shapes[own] == shapes[read[like[own]]]).all()
    assert (read[like[read]] == read).all()
    assert masses[~own].sum() <= 0.01 * masses.sum()
    if count >= np.count_nonzero(masses):
        assert read.tolist() == np.flatnonzero(masses).tolist()
