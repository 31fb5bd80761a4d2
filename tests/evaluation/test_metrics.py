"""Metrics of numbers and of text against references, constant answers, and what metrics refuse."""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ntl.config import UserError
from ntl.config.folders import RESULTS
from ntl.evaluation import (
    NUMBER_METRICS,
    constant_baselines,
    extract_answer,
    number_metrics,
    ridge,
    score_predictions,
    text_metrics,
    token_matches,
    write_predictions,
)
from ntl.evaluation.metrics import Better, metric_of
from ntl.evaluation.numeric import crps
from ntl.evaluation.ridge import Ridge
from ntl.evaluation.textual import token_accuracy, tokens_of

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


# Metrics of text.


def test_rouge_and_bleu_by_hand():
    prediction, answer = "the cats sat on a mat", "the cat sat on the mat"
    metrics = text_metrics([prediction], [answer])
    # 5 of 6 unigrams meet after stemming (the, cat, sat, on, mat), 3 of 5 bigrams (the cat, cat sat, sat on).
    assert metrics["rouge1"] == pytest.approx(5 / 6)
    assert metrics["rouge2"] == pytest.approx(3 / 5)
    assert metrics["rougeL"] == pytest.approx(5 / 6)
    # BLEU does not stem: 4/6, 1/5, then 0/4 and 0/3 smoothed to 1/(2*4) and 1/(4*3); equal lengths, no penalty.
    assert metrics["bleu"] == pytest.approx(100 * (4 / 6 * 1 / 5 * 1 / 8 * 1 / 12) ** 0.25)
    assert metrics["exact_match"] == 0


@pytest.mark.parametrize(
    "text",
    ["семь котов", "七只猫", "سبع قطط", "सात बिल्लियाँ", "แมวเจ็ดตัว", "일곱 고양이", "εφτά", "seven", "-5", "→", "😀 !"],
)
def test_a_right_answer_in_any_script_has_full_marks_and_a_wrong_one_has_none(text: str) -> None:
    right, wrong = text_metrics([text], [text]), text_metrics(["other words 0"], [text])
    assert right["bleu"] == pytest.approx(100)
    assert (right["rouge1"], right["rougeL"], wrong["rouge1"]) == (1, 1, 0)
    assert text_metrics(["seven"], ["seven"], rule="paper")["bleu"] == pytest.approx(0)


def test_the_sign_of_a_number_and_parts_of_a_text_without_spaces_count() -> None:
    assert " ".join(tokens_of("It's −5,3 °C, 5-3 = 2 or -.5kg")) == "It ' s -5,3 ° C , 5 - 3 = 2 or -.5 kg"
    assert tokens_of("有7只猫 हिन्दी") == ["有", "7", "只", "猫", "हिन्दी"]
    for signed, plain in (("-5", "5"), ("–$5", "$5"), ("−.5 m", ".5 m")):
        assert text_metrics([signed], [plain])["rouge1"] < 1
    assert text_metrics(["七只狗"], ["七只猫"])["rouge1"] == pytest.approx(2 / 3)


def test_bleu_is_of_the_corpus_and_paper_means_batches():
    # 64 wrong texts, then one right text, which is the whole second batch.
    predictions = ["a b c d e"] * 64 + ["one two three four five"]
    answers = ["v w x y z"] * 64 + ["one two three four five"]
    default, paper = text_metrics(predictions, answers), text_metrics(predictions, answers, rule="paper")
    orders = [(5 / 325), (4 / 260), (3 / 195), (2 / 130)]
    assert default["bleu"] == pytest.approx(100 * math.prod(orders) ** 0.25)
    assert default["rouge1"] == pytest.approx(1 / 65)
    assert paper["bleu"] == pytest.approx(50, abs=2)
    assert paper["rouge1"] == pytest.approx((0 + 1) / 2)
    assert default["exact_match"] == paper["exact_match"] == 1 / 65


def test_the_papers_token_accuracy_counts_the_padding_behind_the_longest_label():
    """Two labels of 4 and 3 tokens in one batch, 4 tokens right, and 2 x 10 columns of padding, all right."""
    counts = [token_matches([5, 6, 9, 1], [5, 6, 7, 1]), token_matches([4, 8, 1], [5, 6, 1])]
    assert token_accuracy(counts) == pytest.approx(4 / 7)  # 0.571
    assert token_accuracy(counts, rule="paper") == pytest.approx(24 / 27)  # 0.889
    # The second answer goes on to column 6: two columns of padding are wrong, columns 4 and 5 of those from 0 on.
    counts[1] = token_matches([4, 8, 1, 2, 2, 2], [5, 6, 1])
    assert token_accuracy(counts, rule="paper") == pytest.approx(22 / 27)


# The one list of metrics: every score has a line in it, and one without a line is an error that names the file.


def test_the_metric_of_a_key() -> None:
    for key, name, better in (
        ("interpolate/accuracy@paper", "accuracy", Better.higher),
        ("test/rmse_truth:median", "rmse_truth", Better.lower),
        ("validation/ce/head2", "ce", Better.lower),
        ("interpolate/accepted/head3", "accepted", Better.higher),
        ("validation/steps_until_ce_1.0", "steps_until_ce", Better.lower),
        ("test/unparsable", "unparsable", Better.neither),
    ):
        assert (metric_of(key).name, metric_of(key).better) == (name, better)


def test_every_published_metric_is_in_the_list() -> None:
    lines = [line for path in (RESULTS / "runs").glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    names = {metric_of(key).name for line in lines for key in json.loads(line)["metrics"]}
    assert {"accuracy", "mae", "bleu", "ce", "ntl"} <= names


# Ridge regression on the characters of a question: what a text says without a model.


PARTS = {"a": 10.0, "b": -3.0, "c": 250.5, "d": 0.25}


def rows(count: int, seed: int) -> list[dict[str, str]]:
    """What a text is worth is a sum over its characters."""
    drawn = np.random.default_rng(seed).choice(list(PARTS), size=(count, 6))
    return [
        {"question": "".join(text), "answer": f"{sum(PARTS[part] for part in text):.2f}"} for text in drawn.tolist()
    ]


def test_a_linear_text_is_learned_and_noise_is_penalized() -> None:
    test = rows(50, 2)
    model = Ridge(rows(300, 0), rows(50, 1))
    answers = np.array([float(text) for text in model.answers([row["question"] for row in test])])
    known = np.array([float(row["answer"]) for row in test])
    assert np.abs(answers - known).mean() < 0.2 * np.abs(known - np.median(known)).mean()
    assert model.penalty == min(ridge.PENALTIES), "nothing is noise here"
    noise = [{**row, "answer": str(n % 7)} for n, row in enumerate(rows(300, 0))]
    assert Ridge(noise, rows(50, 1)).penalty > min(ridge.PENALTIES)


# ---- refusals

LARGE = [{"question": f"n {index}", "answer": f"{index}e160"} for index in range(40)]
HUGE = [{"question": f"n {index}", "answer": "1e400"} for index in range(5)]
CALLS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: number_metrics(["1"], ["1"], groups=["a", "b"]), ValueError, "lengths must be equal"),
    (lambda: number_metrics(["1", "2"], ["1", "x"]), ValueError, "'x'"),
    (lambda: number_metrics(["1"], ["1"], rule="Paper"), ValueError, "unknown answer rule"),
    (lambda: text_metrics(["a"], ["a", "b"]), ValueError, "argument"),
    (lambda: text_metrics(["a"], ["a"], rule="batch"), ValueError, "'batch'"),
    (lambda: extract_answer("1", "paper+percent"), ValueError, "default, paper"),
    (lambda: extract_answer("1", "default+"), ValueError, "default, paper"),
    (lambda: Ridge(HUGE, HUGE), ValueError, "infinity"),
    (lambda: Ridge(LARGE, LARGE), ValueError, "overflows"),
    (lambda: metric_of("test/closeness@paper"), UserError, "evaluation/metrics.py"),
    (lambda: metric_of("test/"), UserError, "evaluation/metrics.py"),
]


@pytest.mark.parametrize(("call", "error", "named"), CALLS)
def test_arguments(call: Callable[[], Any], error: type[Exception], named: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(error) as caught:
        call()
    assert named in str(caught.value)


ROW = {"split": "test", "id": "9", "answer": "1", "prediction": "1"}


@pytest.mark.parametrize(
    ("rows", "kind", "named"),
    [
        ([], "number", "p.jsonl: no predictions"),
        ([ROW | {"answer": "a cat"}], "number", "test 9: 'answer'"),
        ([ROW | {"truth": "?"}], "number", "test 9: 'truth'"),
        ([ROW | {"answer": "one"}], "numbers", "'one'"),
    ],
)
def test_rows_that_cannot_be_scored(rows: list[dict[str, str]], kind: str, named: str, tmp_path: Path) -> None:
    header = {"schema": 1, "dataset": "gsm8k", "metrics": kind, "decoding": {"name": "greedy"}, "baselines": {}}
    write_predictions(tmp_path / "p.jsonl", header, rows)
    with pytest.raises(UserError) as caught:
        score_predictions(tmp_path / "p.jsonl")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
