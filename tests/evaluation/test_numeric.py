"""Metrics of numbers against references, and the constant answers."""

import math
import random
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ntl.evaluation import NUMBER_METRICS, constant_baselines, number_metrics

NAN = math.nan


def same(first: dict[str, float], second: dict[str, float], rel: float = 1e-9) -> bool:
    return first == pytest.approx(second, rel=rel, nan_ok=True)


# The original code's own outputs for five pairs, the last prediction holding no number.
REFERENCE_PREDICTIONS = ["-1", "34.452", "80", "-1", "none"]
REFERENCE_ANSWERS = ["-4", "34.452", "78", "0", "5"]


@pytest.mark.parametrize("rule", ["default", "paper"])
def test_reference_of_the_original(rule):
    metrics = number_metrics(REFERENCE_PREDICTIONS, REFERENCE_ANSWERS, rule=rule)
    assert metrics["mae"] == 1.5
    assert metrics["mse"] == 3.5
    assert metrics["rmse"] == pytest.approx(3.5**0.5, rel=1e-15)
    assert metrics["r2"] == pytest.approx(0.996779, abs=5e-7)
    assert metrics["accuracy"] == 0.2
    assert metrics["unparsable"] == 0.2
    assert metrics["count"] == 5
    assert metrics["median_error"] == 1.5
    assert metrics["log_mae"] == pytest.approx(0.177457, abs=5e-7)
    assert metrics["log_r2"] == pytest.approx(0.945880, abs=5e-7)
    assert metrics["pearson"] == pytest.approx(0.998903, abs=5e-7)
    assert metrics["spearman"] == pytest.approx(0.948683, abs=5e-7)
    # |-1+4|/4, 0, 2/78; the answer 0 has no relative error, the unparsable one counts 100 in the clipped mean.
    assert metrics["mape"] == pytest.approx((75 + 0 + 200 / 78) / 3)
    assert metrics["mape_median"] == pytest.approx(200 / 78)
    assert metrics["mape_clipped"] == pytest.approx((75 + 0 + 200 / 78 + 100) / 4)
    assert metrics["within_1_percent"] == 0.2


@pytest.mark.parametrize(("rule", "correlation"), [("default", NAN), ("paper", 0.0)])
def test_one_pair(rule, correlation):
    expected = dict.fromkeys(NUMBER_METRICS, 0.0) | {
        "mae": 2,
        "mse": 4,
        "rmse": 2,
        "median_error": 2,
        "log_mae": math.log10(3),
        "r2": NAN,
        "log_r2": NAN,
        "pearson": correlation,
        "spearman": correlation,
        "mape": NAN,
        "mape_median": NAN,
        "mape_clipped": NAN,
        "count": 1,
    }
    assert same(number_metrics(["2"], ["0"], rule=rule), expected)


@pytest.mark.parametrize(("rule", "correlation"), [("default", NAN), ("paper", 0.0)])
def test_nothing_parsed(rule, correlation):
    expected = dict.fromkeys(NUMBER_METRICS, NAN) | {
        "accuracy": 0,
        "within_1_percent": 0,
        "mape_clipped": 100,
        "unparsable": 1,
        "pearson": correlation,
        "spearman": correlation,
        "count": 3,
    }
    assert same(number_metrics(["", "?", "x"], ["1", "2", "3"], rule=rule), expected)


@pytest.mark.parametrize("rule", ["default", "paper"])
def test_no_examples(rule):
    metrics = number_metrics([], [], rule=rule)
    assert metrics["count"] == 0
    assert math.isnan(metrics["accuracy"])
    assert math.isnan(metrics["mape_clipped"])


@pytest.mark.parametrize("rule", ["default", "paper"])
def test_keys_in_order(rule):
    assert tuple(number_metrics(["1"], ["1"], rule=rule)) == NUMBER_METRICS


@pytest.mark.parametrize("rule", ["default", "paper"])
def test_constant_predictions_have_no_correlation(rule):
    metrics = number_metrics(["3", "3", "3"], ["1", "2", "6"], rule=rule)
    assert math.isnan(metrics["pearson"])
    assert math.isnan(metrics["spearman"])
    assert metrics["r2"] == pytest.approx(1 - 14 / 14)


def test_constant_answers_have_no_r2():
    metrics = number_metrics(["3", "4"], ["3", "3"])
    assert math.isnan(metrics["r2"])
    assert math.isnan(metrics["log_r2"])
    assert math.isnan(metrics["pearson"])
    assert metrics["accuracy"] == 0.5


def test_paper_clips_predictions_alone():
    default = number_metrics(["20000000000", "7"], ["20000000000", "7"])
    paper = number_metrics(["20000000000", "7"], ["20000000000", "7"], rule="paper")
    assert (default["accuracy"], default["mae"]) == (1, 0)
    assert (paper["accuracy"], paper["mae"]) == (0.5, 5e9)
    assert paper["log_mae"] == pytest.approx(math.log10(2) / 2, rel=1e-8)


def test_paper_tolerance_is_relative_to_the_answer():
    pairs = {"100000.9": "100000", "100001.1": "100000", "0.000000009": "0", "0.00000002": "0"}
    paper = [number_metrics([p], [a], rule="paper")["accuracy"] for p, a in pairs.items()]
    assert paper == [1, 0, 1, 0]
    assert number_metrics(list(pairs), list(pairs.values()))["accuracy"] == 0


def test_accuracy_is_exact_where_float64_is_not():
    answer, other = "123456789012345678901", "123456789012345678902"
    assert float(answer) == float(other)
    metrics = number_metrics([answer, other, "123,456,789,012,345,678,901.0"], [answer] * 3)
    assert metrics["accuracy"] == 2 / 3
    assert metrics["mae"] == 1 / 3


@given(st.integers(10**20, 10**21 - 1), st.integers(-5, 5), st.integers(0, 8))
def test_accuracy_and_error_of_long_decimals(whole, shift, places):
    def text(value: int) -> str:
        digits = str(value)
        return f"{digits[:-places]}.{digits[-places:]}" if places else digits

    metrics = number_metrics([text(whole + shift)], [text(whole)])
    assert metrics["accuracy"] == (shift == 0)
    assert metrics["mae"] == pytest.approx(abs(shift) / 10**places, rel=1e-15)


def test_predictions_beyond_float64_are_scored():
    huge = "9" * 400
    metrics = number_metrics([huge, f"-{huge}", "3"], ["1", "2", "3"])
    assert metrics["accuracy"] == 1 / 3
    assert metrics["unparsable"] == 0
    assert metrics["mae"] == metrics["mse"] == metrics["rmse"] == metrics["median_error"] == math.inf
    assert metrics["mape"] == metrics["mape_median"] == math.inf
    assert metrics["mape_clipped"] == pytest.approx(200 / 3)
    assert metrics["r2"] == -math.inf
    assert math.isnan(metrics["pearson"])
    assert metrics["spearman"] == pytest.approx(stats.spearmanr([3, 1, 2], [1, 2, 3])[0])
    expected = (400 - math.log10(2) + 400 + math.log10(3)) / 3
    assert metrics["log_mae"] == pytest.approx(expected, rel=1e-12)
    paper = number_metrics([huge, f"-{huge}", "3"], ["1", "2", "3"], rule="paper")
    assert paper["mae"] == pytest.approx((1e10 - 1 + 1e10 + 2) / 3, rel=1e-15)


def test_the_largest_and_smallest_numbers_of_the_grammar():
    metrics = number_metrics(["1e50000", "-1e50000"], ["1e-50000", "1e-50000"])
    assert metrics["mape"] == metrics["mae"] == math.inf
    assert metrics["log_mae"] == 50000
    assert metrics["mape_clipped"] == 100


def test_answers_beyond_float64_are_scored_exactly():
    huge = "1" + "0" * 399
    metrics = number_metrics([huge, f"{huge[:-1]}1"], [huge, huge])
    assert (metrics["accuracy"], metrics["mae"], metrics["mape"]) == (0.5, 0.5, 0)


def test_one_percent_includes_its_bounds():
    predictions = ["101", "99", "101.0000000000000000000001", "0", "-100", "?", "0.1"]
    answers = ["100", "100", "100", "0", "-99.5", "1", "0"]
    assert number_metrics(predictions, answers)["within_1_percent"] == 4 / 7


class TestCells:
    predictions = ("11", "12", "8", "30", "?")
    answers = ("10", "10", "10", "20", "20")
    groups = ("a", "a", "b", "b", None)

    def test_mean_over_cells_is_unweighted(self):
        metrics = number_metrics(self.predictions[:4], self.answers[:4], groups=self.groups[:4])
        assert metrics["mape"] == metrics["mape_clipped"] == pytest.approx((15 + 35) / 2)
        unequal = number_metrics(self.predictions[:3], self.answers[:3], groups=self.groups[:3])
        assert unequal["mape"] == pytest.approx((15 + 20) / 2)
        assert number_metrics(self.predictions[:3], self.answers[:3])["mape"] == pytest.approx((10 + 20 + 20) / 3)

    def test_a_cell_without_parsed_pairs_is_undefined_not_dropped(self):
        metrics = number_metrics(self.predictions, self.answers, groups=self.groups)
        assert math.isnan(metrics["mape"])
        assert metrics["mape_clipped"] == pytest.approx((15 + 35 + 100) / 3)
        assert metrics["mape_median"] == pytest.approx(20)

    def test_a_cell_of_zero_answers_has_no_mape(self):
        metrics = number_metrics(["1", "5"], ["2", "0"], groups=["a", "zero"])
        assert metrics["mape"] == metrics["mape_clipped"] == 50

    def test_clipping_acts_on_each_error(self):
        metrics = number_metrics(["1000", "11"], ["1", "10"])
        assert metrics["mape"] == pytest.approx((99900 + 10) / 2)
        assert metrics["mape_clipped"] == pytest.approx((100 + 10) / 2)

    @given(st.integers(1, 40), st.integers(-300, 300))
    def test_another_cell_enters_with_its_own_weight(self, size, shift):
        before = number_metrics(self.predictions[:4], self.answers[:4], groups=self.groups[:4])
        after = number_metrics(
            [*self.predictions[:4], *[str(100 + shift)] * size],
            [*self.answers[:4], *["100"] * size],
            groups=[*self.groups[:4], *["c"] * size],
        )
        assert after["mape"] == pytest.approx((2 * before["mape"] + abs(shift)) / 3)
        assert after["mape_clipped"] == pytest.approx((2 * before["mape_clipped"] + min(abs(shift), 100)) / 3)


texts = st.one_of(st.integers(-(10**6), 10**6).map(str), st.decimals(-100, 100, places=2).map(str), st.just("?"))
rows = st.lists(st.tuples(texts, st.integers(-1000, 1000).map(str), st.sampled_from("abc")), min_size=1, max_size=30)


@given(rows, st.randoms(use_true_random=False), st.sampled_from(["default", "paper"]))
@settings(max_examples=60)
def test_order_of_examples_does_not_matter(examples, rng: random.Random, rule):
    shuffled = rng.sample(examples, len(examples))
    first, second = (
        number_metrics([r[0] for r in many], [r[1] for r in many], rule=rule, groups=[r[2] for r in many])
        for many in (examples, shuffled)
    )
    assert first == pytest.approx(second, rel=1e-6, abs=1e-6, nan_ok=True)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-99, 99)), min_size=2, max_size=25))
def test_correlations_are_those_of_scipy(values):
    predictions, answers = zip(*values, strict=True)
    metrics = number_metrics([str(p) for p in predictions], [str(a) for a in answers])
    if len(set(predictions)) == 1 or len(set(answers)) == 1:
        assert math.isnan(metrics["pearson"])
        assert math.isnan(metrics["spearman"])
    else:
        assert metrics["pearson"] == pytest.approx(stats.pearsonr(predictions, answers)[0], abs=1e-9)
        assert metrics["spearman"] == pytest.approx(stats.spearmanr(predictions, answers)[0], abs=1e-9)


def test_errors_are_those_of_scikit_learn():
    from sklearn import metrics as sklearn_metrics  # seconds to import, needed here alone

    rng = random.Random(0)
    answers = [rng.gauss(0, 50) for _ in range(200)]
    predictions = [answer + rng.gauss(0, 5) for answer in answers]
    metrics = number_metrics([f"{p:.17f}" for p in predictions], [f"{a:.17f}" for a in answers])
    expected = {
        "mae": sklearn_metrics.mean_absolute_error(answers, predictions),
        "mse": sklearn_metrics.mean_squared_error(answers, predictions),
        "r2": sklearn_metrics.r2_score(answers, predictions),
        "median_error": sklearn_metrics.median_absolute_error(answers, predictions),
        "mape": 100 * sklearn_metrics.mean_absolute_percentage_error(answers, predictions),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-9)


def test_bad_arguments():
    with pytest.raises(ValueError, match="2 predictions, 1 answers and no groups"):
        number_metrics(["1", "2"], ["1"])
    with pytest.raises(ValueError, match="and 2 groups"):
        number_metrics(["1"], ["1"], groups=["a", "b"])
    with pytest.raises(ValueError, match=r"answer 1 holds no number \(rule default\): 'x'"):
        number_metrics(["1", "2"], ["1", "x"])
    with pytest.raises(ValueError, match="unknown answer rule"):
        number_metrics(["1"], ["1"], rule="Paper")


def test_fifty_thousand_rows_take_seconds():
    rng = random.Random(0)
    answers = [str(rng.randrange(10**6)) for _ in range(50_000)]
    start = time.perf_counter()
    metrics = number_metrics([f" {answer}" for answer in answers], answers, groups=[a[0] for a in answers])
    assert time.perf_counter() - start < 10
    assert metrics["accuracy"] == 1


# ---- constants

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
def test_constants_by_hand(targets, mode, median, mean):
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
