"""Metrics of numbers against references, and the constant answers."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ntl.evaluation import NUMBER_METRICS, constant_baselines, number_metrics
from ntl.evaluation.numeric import crps

NAN = math.nan
BOTH_RULES = pytest.mark.parametrize("rule", ["default", "paper"])


def metrics_of(*pairs: tuple[str, str], rule: str = "default") -> dict[str, float]:
    """The metrics of pairs of a prediction and its answer."""
    return number_metrics([prediction for prediction, _ in pairs], [answer for _, answer in pairs], rule=rule)


@BOTH_RULES
def test_reference_of_the_original(rule):
    """The original code's own outputs for five pairs, the last prediction holding no number."""
    metrics = metrics_of(("-1", "-4"), ("34.452", "34.452"), ("80", "78"), ("-1", "0"), ("none", "5"), rule=rule)
    assert tuple(metrics) == NUMBER_METRICS
    exact = {"mae": 1.5, "mse": 3.5, "median_error": 1.5, "accuracy": 0.2, "within_1_percent": 0.2}
    exact |= {"unparsable": 0.2, "count": 5}
    assert {name: metrics[name] for name in exact} == exact
    assert metrics["rmse"] == pytest.approx(3.5**0.5, rel=1e-15)
    rounded = {"r2": 0.996779, "log_mae": 0.177457, "log_r2": 0.945880, "pearson": 0.998903, "spearman": 0.948683}
    assert {name: metrics[name] for name in rounded} == pytest.approx(rounded, rel=0, abs=5e-7)
    # |-1+4|/4, 0, 2/78; the answer 0 has no relative error, the unparsable one counts 100 in the clipped mean.
    assert metrics["mape"] == pytest.approx((75 + 0 + 200 / 78) / 3)
    assert metrics["mape_median"] == pytest.approx(200 / 78)
    assert metrics["mape_clipped"] == pytest.approx((75 + 0 + 200 / 78 + 100) / 4)


UNDEFINED = dict.fromkeys(NUMBER_METRICS, NAN)
NO_PARSED = UNDEFINED | {"accuracy": 0, "within_1_percent": 0, "unparsable": 1, "mape_clipped": 100, "count": 3}
NO_PARSED |= {"ape_clipped_10": 10, "log_ape": math.log(101)}
ONE_PAIR = UNDEFINED | {"accuracy": 0, "within_1_percent": 0, "unparsable": 0, "mae": 2, "mse": 4, "rmse": 2}
ONE_PAIR |= {"median_error": 2, "log_mae": math.log10(3), "count": 1}


@pytest.mark.parametrize(("rule", "correlation"), [("default", NAN), ("paper", 0.0)])
def test_fewer_than_two_pairs(rule: str, correlation: float) -> None:
    nothing = [("", "1"), ("?", "2"), ("x", "3")]
    for pairs, values in (([("2", "0")], ONE_PAIR), (nothing, NO_PARSED), ([], UNDEFINED | {"count": 0})):
        expected = values | {"pearson": correlation, "spearman": correlation}
        assert metrics_of(*pairs, rule=rule) == pytest.approx(expected, rel=1e-9, nan_ok=True)
    constant = metrics_of(("1", "2"), ("1", "3"), rule=rule)
    assert math.isnan(constant["pearson"])
    assert math.isnan(constant["spearman"])


def test_paper_clips_predictions_alone():
    pairs = [("20000000000", "20000000000"), ("-20000000000", "-20000000000"), ("20000000000", "10000000000")]
    default, paper = metrics_of(*pairs), metrics_of(*pairs, rule="paper")
    assert (default["accuracy"], default["mae"]) == (2 / 3, 1e10 / 3)
    assert (paper["accuracy"], paper["mae"], paper["mape"]) == (1 / 3, 2e10 / 3, 100 / 3)
    assert paper["log_mae"] == pytest.approx(2 * math.log10(2) / 3, rel=1e-8)


def test_equal_is_exact_on_decimals_and_by_the_papers_rule_close():
    answer, other = "123456789012345678901", "123456789012345678902"
    metrics = metrics_of((answer, answer), (other, answer), ("123,456,789,012,345,678,901.0", answer), ("0.30", "0.3"))
    assert (metrics["accuracy"], metrics["mae"]) == (3 / 4, 1 / 4)
    # np.isclose: |p - l| <= 1e-8 + 1e-5 |l|
    pairs = [("100000.9", "100000"), ("100001.1", "100000"), ("0.000000009", "0"), ("0.00000002", "0")]
    assert [metrics_of(pair, rule="paper")["accuracy"] for pair in pairs] == [1, 0, 1, 0]


def test_predictions_beyond_float64_are_scored():
    huge = "9" * 400
    pairs = [(huge, "1"), (f"-{huge}", "2"), ("3", "3")]
    metrics = metrics_of(*pairs)
    assert metrics["accuracy"] == 1 / 3
    assert metrics["unparsable"] == 0
    assert metrics["mae"] == metrics["mse"] == metrics["rmse"] == metrics["median_error"] == math.inf
    assert metrics["mape"] == metrics["mape_median"] == math.inf
    assert metrics["mape_clipped"] == pytest.approx(200 / 3)
    assert metrics["r2"] == -math.inf
    assert metrics["pearson"] == pytest.approx(stats.pearsonr([1, -1, 0], [1, 2, 3])[0])
    assert metrics["spearman"] == pytest.approx(stats.spearmanr([3, 1, 2], [1, 2, 3])[0])
    expected = (400 - math.log10(2) + 400 + math.log10(3)) / 3
    assert metrics["log_mae"] == pytest.approx(expected, rel=1e-12)
    assert metrics_of(*pairs, rule="paper")["mae"] == pytest.approx((1e10 - 1 + 1e10 + 2) / 3, rel=1e-15)


@pytest.mark.parametrize("shift", [0, 10**16, -(10**20), 10**400, Decimal("0.1")])
def test_what_is_of_deviations_does_not_change_with_a_shift(shift: int | Decimal) -> None:
    """By hand: 1 - 5 / 41.2, and 24.4 / sqrt(26.8 x 41.2 x 0.567...) of {1, 2, 3, 6, 7} against {1, 2, 4, 6, 9}."""
    pairs = [(str(p + shift), str(a + shift)) for p, a in zip((1, 2, 3, 6, 7), (1, 2, 4, 6, 9), strict=True)]
    metrics = metrics_of(*pairs)
    assert metrics["r2"] == pytest.approx(1 - 5 / 41.2, rel=1e-14)
    assert metrics["pearson"] == pytest.approx(stats.pearsonr([1, 2, 3, 6, 7], [1, 2, 4, 6, 9])[0], rel=1e-14)
    assert metrics_of(*pairs[1:], pairs[0][::-1], ("0", "0"))["spearman"] == pytest.approx(1)
    # Logs of large values near each other are as these values.
    if abs(shift) == 10**16:
        assert metrics["log_r2"] == pytest.approx(metrics["r2"], rel=1e-14)


@BOTH_RULES
def test_one_percent_includes_its_bounds(rule):
    inside = [("101", "100"), ("99", "100"), ("-101", "-100"), ("0", "0"), ("-100", "-99.5"), ("9", "9")]
    outside = [("101.01", "100"), ("98.99", "100"), ("-1", "-4"), ("5", "0"), ("0.1", "0"), ("?", "1")]
    if rule == "default":  # exact on decimals
        inside += [("0.101", "0.1")]
        outside += [("101.0000000000000000000001", "100"), ("0.1010000000000000000000001", "0.1")]
        outside += [("-98.999999999999999999999", "-100")]
    shares = [[metrics_of(pair, rule=rule)["within_1_percent"] for pair in pairs] for pairs in (inside, outside)]
    assert shares == [[1] * len(inside), [0] * len(outside)]


def test_mean_over_cells() -> None:
    """Cells of unequal sizes count alike; one in which nothing is parsed is not dropped; each error is clipped."""
    predictions, answers, groups = ["11", "12", "8", "30", "?"], ["10", "10", "10", "20", "20"], [*"aabb", None]
    for upto, cells, mape, clipped in (
        (3, groups, (15 + 20) / 2, (15 + 20) / 2),
        (3, None, 50 / 3, 50 / 3),
        (5, groups, NAN, (15 + 35 + 100) / 3),
    ):
        found = number_metrics(predictions[:upto], answers[:upto], groups=cells and cells[:upto])
        assert (found["mape"], found["mape_clipped"]) == pytest.approx((mape, clipped), nan_ok=True)
    found = number_metrics(["1000", "11"], ["1", "10"])
    assert (found["mape"], found["mape_clipped"]) == pytest.approx(((99900 + 10) / 2, (100 + 10) / 2))


def test_bad_arguments():
    with pytest.raises(ValueError, match="the lengths must be equal"):
        number_metrics(["1"], ["1"], groups=["a", "b"])
    with pytest.raises(ValueError, match=r"an answer holds no number \(rule default\): 'x'"):
        number_metrics(["1", "2"], ["1", "x"])
    with pytest.raises(ValueError, match="unknown answer rule"):
        number_metrics(["1"], ["1"], rule="Paper")


def test_constants_by_hand() -> None:
    for targets, *values in (
        (["17", "18", "17", "21"], "17", "17.5", "18.25"),
        (["2", "1", "2", "1", "9"], "1", "2", "3"),
        (["2.50", "2.5", "2"], "2.5", "2.5", "2.3333333333333333333"),
        (["How many? 3 + 4\n#### 1,234"], "1234", "1234", "1234"),
        # A mean has 20 significant digits, and a half is rounded to even.
        ([f"{10**19 + 1}", f"{10**19 + 4}"], f"{10**19 + 1}", f"{10**19 + 2}.5", f"{10**19 + 2}"),
    ):
        assert constant_baselines(targets) == dict(zip(("mode", "median", "mean"), values, strict=True))


FINITE = st.lists(
    st.tuples(st.integers(-40, 40), st.integers(1, 20)), min_size=1, max_size=8, unique_by=lambda pair: pair[0]
)


@given(FINITE, st.lists(st.integers(-40, 40), min_size=1, max_size=12))
def test_crps_is_what_the_double_sums_say(found: list[tuple[int, int]], tenths: list[int]) -> None:
    """E|X - Y| - E|X - X'|/2 - E|Y - Y'|/2, over all pairs of a finite support."""
    total = sum(weight for _, weight in found)
    values, shares = zip(*sorted((value / 10, weight / total) for value, weight in found), strict=True)
    labels = [tenth / 10 for tenth in tenths]
    x, y = list(zip(values, shares, strict=True)), [(label, 1 / len(labels)) for label in labels]

    def mean_distance(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> float:
        return sum(p * q * abs(a - b) for a, p in one for b, q in other)

    expected = mean_distance(x, y) - mean_distance(x, x) / 2 - mean_distance(y, y) / 2
    assert crps(values, shares, labels) == pytest.approx(expected, abs=1e-12)
