import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.evaluation import constant_baselines, number_metrics

# Histograms of the scores 0..11 in the published rJokes splits.
RJOKES_TRAIN = [118365, 83797, 62462, 33500, 20307, 12454, 6902, 3685, 1806, 1433, 1229, 25]
RJOKES_DEV = [14962, 10382, 7715, 4194, 2540, 1590, 825, 461, 239, 172, 160, 6]


# Of 10000000000000000002.5, to 20 significant digits, half to even.
ROUNDED = "10000000000000000002"


def spell(histogram: list[int]) -> list[str]:
    return [str(score) for score, count in enumerate(histogram) for _ in range(count)]


def test_rjokes_constants():
    assert sum(RJOKES_TRAIN) == 345_965
    assert sum(RJOKES_DEV) == 43_246
    constants = constant_baselines(spell(RJOKES_TRAIN))
    assert constants["mode"] == "0"
    assert constants["median"] == "1"
    assert float(constants["mean"]) == pytest.approx(1.618187, abs=5e-7)
    answers = spell(RJOKES_DEV)
    mean, median = (number_metrics([constants[name]] * len(answers), answers) for name in ("mean", "median"))
    assert mean["rmse"] == pytest.approx(1.83072, abs=5e-6)
    assert mean["mae"] == pytest.approx(1.41251, abs=5e-6)
    assert median["rmse"] == pytest.approx(1.93099, abs=5e-6)
    assert median["mae"] == pytest.approx(1.30613, abs=5e-6)
    assert math.isnan(mean["pearson"])


@pytest.mark.parametrize(
    ("targets", "mode", "median", "mean"),
    [
        (["17", "18", "17", "21"], "17", "17.5", "18.25"),
        (["3", "1", "2"], "1", "2", "2"),
        (["2", "1", "2", "1", "9"], "1", "2", "3"),
        (["2.50", "2.5", "2"], "2.5", "2.5", "2.3333333333333333333"),
        (["-1", "1"], "-1", "0", "0"),
        (["1,234"], "1234", "1234", "1234"),
        (["How many? 3 + 4\n#### 7"], "7", "7", "7"),
        (["10000000000000000001", "10000000000000000004"], "10000000000000000001", "10000000000000000002.5", ROUNDED),
    ],
)
def test_by_hand(targets, mode, median, mean):
    assert constant_baselines(targets) == {"mode": mode, "median": median, "mean": mean}


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_the_mean_has_20_digits(values, rng: random.Random):
    constants = constant_baselines([str(value) for value in values])
    rng.shuffle(values)
    assert constant_baselines([str(value) for value in values]) == constants
    exact = Fraction(sum(values), len(values))
    assert abs(Fraction(constants["mean"]) - exact) <= abs(exact) / 10**19


def test_what_has_no_constants():
    with pytest.raises(ValueError, match="no training targets"):
        constant_baselines([])
    with pytest.raises(ValueError, match="'a cat' holds no number"):
        constant_baselines(["1", "a cat"])
