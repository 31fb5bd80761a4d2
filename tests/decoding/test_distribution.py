"""Statistics of a distribution over numbers by hand, and what stands for prefixes that were not read on."""

import math
import pickle

import numpy as np
import pytest

from ntl.decoding.distribution import NumberDistribution, Prefix, complete


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


PIECES = ("1", "2", "-", ".")


def prefix(text: str, mass: float, end: float, *behind: float) -> Prefix:
    return Prefix(text, mass, end, np.array(behind or [0.0] * len(PIECES)))


def test_what_was_not_read_goes_on_as_the_nearest_of_its_shape() -> None:
    """Read were "1", "11" and "-1" by way of "-"; not read were "2" and "12"; "1." has no like and ends."""
    root, one, eleven = (
        prefix("", 1, 0, 0.5, 0.3, 0.2),
        prefix("1", 0.5, 0.4, 0.3, 0.1, 0, 0.2),
        prefix("11", 0.15, 0.8),
    )
    minus, below = prefix("-", 0.2, 0, 1.0), prefix("-1", 0.2, 0.6)
    root.longer, one.longer, minus.longer = {0: one, 2: minus}, {0: eleven}, {0: below}
    expected = {"1": 0.5 * 0.4, "11": 0.5 * 0.3 * 0.8, "12": 0.5 * 0.1 * 0.8, "1.": 0.5 * 0.2, "-1": 0.2 * 0.6}
    borrowed = {"2": 0.3 * 0.4, "21": 0.3 * 0.3 * 0.8, "22": 0.3 * 0.1 * 0.8, "2.": 0.3 * 0.2}
    tree = [root, one, minus, eleven, below]
    found, alike = complete(tree, PIECES, 0.01), NumberDistribution.of(expected | borrowed)
    assert found.values.tolist() == alike.values.tolist() == [-1, 1, 2, 11, 12, 21, 22]
    assert found.probabilities == pytest.approx(alike.probabilities)
    assert found.covered == pytest.approx(0.5 * 0.4 + 0.15 * 0.8 + 0.2 * 0.6)
    # In numbers of 0.15 each, "2" goes on as two of the five rests of "1" do.
    found = complete(tree, PIECES, 0.15)
    two = found.probabilities[np.isin(found.texts, [*borrowed])]
    assert two == pytest.approx([math.fsum(borrowed.values()) / len(two)] * len(two))
    assert found.represented == pytest.approx(alike.represented)
