"""All scores of a predictions file, and what a record keeps of single examples."""

import hashlib
import json
import math
import random
import time
from decimal import Decimal

import numpy as np
import pytest

from ntl.config import UserError
from ntl.evaluation import (
    NUMBER_METRICS,
    TEXT_METRICS,
    number_metrics,
    score_predictions,
    text_metrics,
    write_predictions,
)
from ntl.evaluation.scores import count_digits, hash_ids, sample_errors
from ntl.results import unpack_bits

HEADER = {
    "schema": 1,
    "dataset": "noisy_numbers",
    "metrics": "number",
    "decoding": {"name": "greedy"},
    "baselines": {"mode": "10", "median": "12", "mean": "12.5"},
}


def row(split: str, key: int, answer: str, prediction: str, **more: str) -> dict[str, str]:
    return {"split": split, "id": str(key), "answer": answer, "prediction": prediction, **more}


ROWS = [
    row("interpolate", 0, "10", " 11", group="1x2", truth="12"),
    row("extrapolate", 0, "400", "20000000000"),
    row("interpolate", 1, "10", "10", group="1x2", truth="9"),
    row("interpolate", 2, "20", "", group="2x2", truth="20"),
    row("interpolate", 3, "25", "1,020", group="2x1", truth="20"),
    row("extrapolate", 1, "500", "500"),
]


@pytest.fixture
def path(tmp_path):
    write_predictions(tmp_path / "predictions.jsonl", HEADER, ROWS)
    return tmp_path / "predictions.jsonl"


@pytest.mark.parametrize("metrics", ["number", "text"])
def test_the_share_of_predictions_with_malformed_numbers(tmp_path, metrics):
    rows = [{**row("test", key, "10", "10"), "malformed": count} for key, count in enumerate((0, 2, 0, 1))]
    rows += [row("validation", 0, "10", "10"), {**row("validation", 1, "10", "10"), "malformed": 1}]
    write_predictions(tmp_path / "p.jsonl", HEADER | {"metrics": metrics}, rows)
    found = score_predictions(tmp_path / "p.jsonl").metrics
    assert found["test/malformed"] == 0.5
    assert "validation/malformed" not in found


def test_the_mean_probability_that_numbers_had(tmp_path):
    rows = [{**row("test", key, "10", "10"), "covered": covered} for key, covered in enumerate((1.0, 0.5, 0.0))]
    rows += [{**row("validation", 0, "10", "10"), "covered": 1.0}, row("validation", 1, "10", "10")]
    write_predictions(tmp_path / "p.jsonl", HEADER, rows)
    found = score_predictions(tmp_path / "p.jsonl").metrics
    assert found["test/covered"] == 0.5
    assert "validation/covered" not in found


def test_metrics_of_both_rules(path):
    metrics = score_predictions(path).metrics
    for split in ("interpolate", "extrapolate"):
        rows = [r for r in ROWS if r["split"] == split]
        columns = [[r[key] for r in rows] for key in ("prediction", "answer")]
        for rule, suffix in (("default", ""), ("paper", "@paper")):
            expected = number_metrics(*columns, rule=rule, groups=[r.get("group") for r in rows])
            found = {name: metrics[f"{split}/{name}{suffix}"] for name in NUMBER_METRICS}
            assert found == pytest.approx(expected, nan_ok=True)
    assert metrics["interpolate/accuracy"] == 0.25
    assert metrics["interpolate/mae"] == pytest.approx((1 + 0 + 995) / 3)
    assert metrics["interpolate/mae@paper"] == pytest.approx((1 + 0 + 5) / 3)
    assert math.isnan(metrics["interpolate/mape"])
    assert metrics["extrapolate/mae@paper"] == (1e10 - 400) / 2


def test_truth(path):
    metrics = score_predictions(path).metrics
    assert metrics["interpolate/mae_truth"] == pytest.approx((1 + 1 + 1000) / 3)
    assert metrics["interpolate/rmse_truth"] == pytest.approx(math.sqrt((1 + 1 + 1000**2) / 3))
    assert not [name for name in metrics if name.startswith("extrapolate/") and "truth" in name]


def test_truth_is_scored_where_it_is_known(tmp_path):
    write_predictions(tmp_path / "p.jsonl", HEADER, [row("test", 0, "1", "1"), row("test", 1, "1", "2", truth="5")])
    metrics = score_predictions(tmp_path / "p.jsonl").metrics
    assert metrics["test/mae_truth"] == 3
    assert metrics["test/mae_truth:mode"] == 5


def test_constants(path):
    metrics = score_predictions(path).metrics
    assert metrics["interpolate/mae:mode"] == (0 + 0 + 10 + 15) / 4
    assert metrics["interpolate/mae:median"] == (2 + 2 + 8 + 13) / 4
    assert metrics["interpolate/rmse:mean"] == math.sqrt((2.5**2 + 2.5**2 + 7.5**2 + 12.5**2) / 4)
    assert metrics["interpolate/mae_truth:mean"] == (0.5 + 3.5 + 7.5 + 7.5) / 4
    assert metrics["interpolate/rmse_truth:mode"] == math.sqrt((4 + 1 + 100 + 100) / 4)
    assert metrics["extrapolate/mae:mode"] == (390 + 490) / 2
    assert metrics["interpolate/log_mae:mode"] == pytest.approx((math.log10(21 / 11) + math.log10(26 / 11)) / 4)
    # Of 400 and 500 by 10, on the scale log10(x + 1): 1 - (distance of their mean from it / half their distance)^2 - 1.
    low, high, at = (math.log10(value) for value in (401, 501, 11))
    expected = -((((low + high) / 2 - at) / ((high - low) / 2)) ** 2)
    assert metrics["extrapolate/log_r2:mode"] == pytest.approx(expected)
    assert sum(":" in name for name in metrics) == 3 * (2 * 9 + 2)


def test_groups(path):
    groups = score_predictions(path).groups
    assert list(groups) == ["interpolate"]
    assert list(groups["interpolate"]) == ["1x2", "2x1", "2x2"]
    assert groups["interpolate"]["1x2"] == {"accuracy": 0.5, "mape": 5, "mae": 0.5, "count": 2}
    assert groups["interpolate"]["2x1"] == {"accuracy": 0, "mape": 3980, "mae": 995, "count": 1}
    failed = groups["interpolate"]["2x2"]
    assert (failed["accuracy"], failed["count"]) == (0, 1)
    assert math.isnan(failed["mape"])
    assert math.isnan(failed["mae"])


def test_digests(path):
    scores = score_predictions(path)
    assert unpack_bits(scores.correct["interpolate"], 4).tolist() == [False, True, False, False]
    order = sorted("0123", key=lambda text: hashlib.sha1(text.encode()).hexdigest())
    assert scores.errors["interpolate"] == [[1.0, 0.0, None, 995.0][int(text)] for text in order]
    assert scores.ids_sha256["interpolate"] == hashlib.sha256(b"0\n1\n2\n3").hexdigest()
    assert scores.predictions_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert scores.digits["interpolate"]["prediction"]["last"] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert scores.digits["interpolate"]["answer"]["leading"] == [0, 2, 2, 0, 0, 0, 0, 0, 0, 0]
    assert scores.rules == {"default": 3, "paper": 1}


def test_text(tmp_path):
    rows = [row("validation", 0, "the red cat", "the red cat "), row("validation", 1, "a dog", "the dog")]
    write_predictions(tmp_path / "p.jsonl", HEADER | {"metrics": "text", "baselines": {}}, rows)
    scores = score_predictions(tmp_path / "p.jsonl")
    expected = text_metrics([r["prediction"] for r in rows], [r["answer"] for r in rows])
    assert {name: scores.metrics[f"validation/{name}"] for name in TEXT_METRICS} == expected
    assert {name: scores.metrics[f"validation/{name}@paper"] for name in TEXT_METRICS} == expected
    assert unpack_bits(scores.correct["validation"], 2).tolist() == [True, False]
    assert scores.errors == scores.digits == scores.groups == {}


def test_answers_behind_a_mark(tmp_path):
    rows = [
        row("test", 0, "1+1\n#### 2", "so 1 and 1\n#### 2"),
        row("test", 1, "2+2\n#### 4", "that makes 4"),
        row("test", 2, "no\n#### 0", "1 x 9 = 9\n#### 1/3"),
        row("test", 3, "no\n#### 0", ""),
    ]
    write_predictions(tmp_path / "p.jsonl", HEADER | {"baselines": {}}, rows)
    metrics = score_predictions(tmp_path / "p.jsonl").metrics
    assert (metrics["test/accuracy"], metrics["test/marked"], metrics["test/unparsable"]) == (0.5, 0.5, 0.5)
    assert "test/marked@paper" not in metrics


def test_no_mark_no_share_of_marks(path):
    assert not any("marked" in name for name in score_predictions(path).metrics)


def counted(split, key, right, size):
    counts = {"tokens_correct": right, "tokens_total": size, "tokens_generated": size}
    return {**row(split, key, "a b", "a c"), **counts}


def test_token_accuracy(tmp_path):
    rows = [counted("validation", 0, 1, 2), counted("validation", 1, 0, 6)]
    write_predictions(tmp_path / "p.jsonl", HEADER | {"metrics": "text", "baselines": {}}, rows)
    metrics = score_predictions(tmp_path / "p.jsonl").metrics
    assert metrics["validation/token_accuracy"] == 1 / 8
    assert metrics["validation/token_accuracy@paper"] == 21 / 28  # ten columns of padding in each row, all right
    rows = [counted("validation", key, 1, 2) for key in range(64)] + [counted("validation", 64, 3, 4)]
    write_predictions(tmp_path / "p.jsonl", HEADER | {"metrics": "text", "baselines": {}}, rows)
    metrics = score_predictions(tmp_path / "p.jsonl").metrics
    assert metrics["validation/token_accuracy"] == 67 / 132
    assert metrics["validation/token_accuracy@paper"] == (704 / 768 + 13 / 14) / 2
    for line in rows:
        del line["tokens_generated"]  # as older files
    write_predictions(tmp_path / "p.jsonl", HEADER | {"metrics": "text", "baselines": {}}, rows)
    metrics = score_predictions(tmp_path / "p.jsonl").metrics
    assert metrics["validation/token_accuracy"] == 67 / 132
    assert "validation/token_accuracy@paper" not in metrics
    rows[5] = row("validation", 5, "a", "a")
    write_predictions(tmp_path / "p.jsonl", HEADER | {"metrics": "text", "baselines": {}}, rows)
    with pytest.raises(UserError, match=r"p\.jsonl: 64 of 65 validation rows count their tokens"):
        score_predictions(tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (HEADER, [], r"p\.jsonl:2: no predictions after the header"),
        (HEADER, [ROWS[0], row("test", 9, "a cat", "1")], r"p\.jsonl:3: 'answer' holds no number: 'a cat'"),
        (HEADER, [row("test", 9, "1", "1", truth="?")], r"p\.jsonl:2: 'truth' holds no number: '\?'"),
        (HEADER | {"baselines": {"mean": "much"}}, [ROWS[0]], r"p\.jsonl:1: baseline 'mean': 'much' must be a number"),
        (HEADER | {"baselines": {"mean": 12.5}}, [ROWS[0]], r"p\.jsonl:1: baseline 'mean': 12\.5 must be a number"),
        (HEADER | {"baselines": {"best": "1"}}, [ROWS[0]], r"p\.jsonl:1: baseline 'best'.*one of mode, median, mean"),
    ],
)
def test_what_cannot_be_scored(tmp_path, header, rows, message):
    write_predictions(tmp_path / "p.jsonl", header, rows)
    with pytest.raises(UserError, match=message):
        score_predictions(tmp_path / "p.jsonl")


@pytest.mark.slow
def test_fifty_thousand_rows_take_seconds(tmp_path):
    rng = random.Random(0)
    rows = [
        row("test", key, str(rng.randrange(10**9)), f" {rng.randrange(10**9)}", group=f"{key % 36}", truth="5")
        for key in range(50_000)
    ]
    write_predictions(tmp_path / "p.jsonl", HEADER, rows)
    start = time.perf_counter()
    scores = score_predictions(tmp_path / "p.jsonl")
    assert time.perf_counter() - start < 15
    assert len(scores.groups["test"]) == 36
    assert len(json.dumps(scores.errors)) < 20_000


def test_a_rule_that_is_wrong_in_a_known_way(tmp_path):
    answers = [("10", "10", "10"), ("20", "25", "25"), ("30", "33", "35"), ("40", "44", "44")]
    rows = [row("test", n, answer, said, shortcut=rule) for n, (answer, said, rule) in enumerate(answers)]
    rows += [row("validation", 0, "1", "2", shortcut="2"), row("validation", 1, "1", "1")]
    write_predictions(tmp_path / "p.jsonl", HEADER, rows)
    found = score_predictions(tmp_path / "p.jsonl").metrics
    assert (found["test/accuracy:shortcut"], found["test/mae:shortcut"]) == (0.25, (0 + 5 + 5 + 4) / 4)
    assert found["test/wrong_as_shortcut"] == pytest.approx(2 / 3)
    assert not [name for name in found if name.startswith("validation/") and "shortcut" in name]


def test_hash_depends_on_the_order():
    assert hash_ids(["a", "b"]) == hashlib.sha256(b"a\nb").hexdigest()
    assert hash_ids(["b", "a"]) != hash_ids(["a", "b"])


def test_sample_is_a_thousand_in_the_order_of_sha1():
    ids = [str(index) for index in range(1500)]
    errors = np.arange(1500, dtype=np.float64)
    order = sorted(ids, key=lambda text: hashlib.sha1(text.encode()).hexdigest())[:1000]
    assert sample_errors(ids, errors) == [float(text) for text in order]
    assert sample_errors(ids[::-1], errors[::-1]) == sample_errors(ids, errors)


def test_errors_are_rounded_and_undefined_ones_are_none():
    assert sample_errors(["a"], np.array([math.nan])) == [None]
    assert sample_errors(["a"], np.array([1234567.0])) == [1234570.0]
    assert sample_errors(["a"], np.array([math.inf])) == [math.inf]


def test_digits_by_hand():
    values = [Decimal("120"), Decimal("-0.05"), Decimal("2.50"), Decimal("0"), Decimal("3E+2"), None]
    leading, last = [0] * 10, [0] * 10
    for digit in (1, 5, 2, 0, 3):
        leading[digit] += 1
    for digit in (0, 5, 0, 0, 0):
        last[digit] += 1
    assert count_digits(values) == {"leading": leading, "last": last}
