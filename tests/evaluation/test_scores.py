"""All scores of a predictions file, and what a record keeps of single examples."""

import hashlib
import json
import math
import os
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config import UserError
from ntl.evaluation import NUMBER_METRICS, Scores, read_predictions, score_predictions, write_predictions
from ntl.evaluation.interval import Calibration
from ntl.evaluation.numeric import constant_baselines
from ntl.evaluation.predictions import json_value
from ntl.evaluation.scores import speculation_metrics
from ntl.results import RunRecord
from ntl.results.record import write_record

HEADER = {
    "schema": 1,
    "dataset": "noisy_numbers",
    "metrics": "number",
    "decoding": {"name": "greedy"},
    "baselines": {"mode": "10", "median": "12", "mean": "12.5"},
}


def row(split: str, key: int, answer: str, prediction: str, **more: Any) -> dict[str, Any]:
    return {"split": split, "id": str(key), "answer": answer, "prediction": prediction, **more}


ROWS = [
    row("interpolate", 0, "10", " 11", group="1x2", truth="12"),
    row("extrapolate", 0, "400", "20000000000"),
    row("interpolate", 1, "10", "10", group="1x2", truth="9"),
    row("interpolate", 2, "20", "", group="2x2", truth="20"),
    row("interpolate", 3, "25", "1,020", group="2x1", truth="20"),
    row("extrapolate", 1, "500", "500"),
]


TEXT = {"metrics": "text", "baselines": {}}


@pytest.fixture
def score(tmp_path) -> Callable[..., Scores]:
    """The scores of rows under a header with these changes."""

    def make(rows: Sequence[Mapping[str, Any]], **changes: Any) -> Scores:
        write_predictions(tmp_path / "p.jsonl", HEADER | changes, rows)
        return score_predictions(tmp_path / "p.jsonl")

    return make


@pytest.fixture
def scores(score) -> Scores:
    return score(ROWS)


def test_errors_of_each_row(score):
    """In the order of the file; of more than 1,000 rows the same ones of every file with these ids."""
    assert score(ROWS).errors["interpolate"].tolist()[:2] == [1.0, 0.0]
    assert np.isnan(score(ROWS).errors["interpolate"][2])
    many = [row("test", key, "10", str(10 + key % 100)) for key in range(1100)]
    kept = sorted(sorted(range(1100), key=lambda key: hashlib.sha1(str(key).encode()).hexdigest())[:1000])
    assert score(many).errors["test"].tolist() == [key % 100 for key in kept]


def test_relative_errors_that_no_blunder_rules(score):
    """APE 10, 0, 100 (no number) and 3,980 percent; an answer of 0 has none."""
    found = score([*ROWS, row("interpolate", 4, "0", "3")]).metrics
    assert found["interpolate/ape_clipped_10"] == pytest.approx((10 + 0 + 10 + 10) / 4)
    expected = (math.log(11) + math.log(101) + math.log(3981)) / 4
    assert found["interpolate/log_ape"] == pytest.approx(expected)


def test_what_every_row_of_a_split_has_is_averaged(score):
    rows = [row("test", number, "10", "10", covered=value) for number, value in enumerate((1.0, 0.5, 0.0))]
    found = score([*rows, row("validation", 0, "10", "10"), row("validation", 1, "10", "10", covered=1)]).metrics
    assert found["test/covered"] == 0.5
    assert "validation/covered" not in found


def test_intervals_are_scored_where_the_header_has_scores_of_validation_answers(score):
    rows = [row("test", number, "10", text) for number, text in enumerate(("10", "19", "20", "none"))]
    found = score([*rows, row("validation", 0, "10", "10")], calibration=Calibration.from_errors(range(1, 10)).header)
    metrics = found.metrics
    assert (metrics["test/coverage_90"], metrics["test/width_90"]) == (0.5, 18)
    assert not [name for name in score(rows).metrics if "90" in name]
    assert "validation/coverage_90" not in metrics  # it would be of the answers that it is calibrated on


def test_metrics_of_both_rules(scores):
    metrics = scores.metrics
    for suffix in ("", "@paper"):
        assert {f"interpolate/{name}{suffix}" for name in NUMBER_METRICS} <= metrics.keys()
    # Cells count alike: 5 in two rows of 1x2, 3980 in one of 2x1, and nothing is read in 2x2.
    assert math.isnan(metrics["interpolate/mape"])
    assert metrics["interpolate/mape_clipped"] == pytest.approx((5 + 100 + 100) / 3)
    assert metrics["interpolate/mae"] == pytest.approx((1 + 0 + 995) / 3)
    assert metrics["interpolate/mae@paper"] == pytest.approx((1 + 0 + 5) / 3)
    assert metrics["extrapolate/mae@paper"] == (1e10 - 400) / 2


def test_truth_is_scored_where_it_is_known(scores, score):
    metrics = scores.metrics
    assert metrics["interpolate/mae_truth"] == pytest.approx((1 + 1 + 1000) / 3)
    assert metrics["interpolate/rmse_truth"] == pytest.approx(math.sqrt((1 + 1 + 1000**2) / 3))
    assert not [name for name in metrics if name.startswith("extrapolate/") and "truth" in name]
    some = score([row("test", 0, "1", "1"), row("test", 1, "1", "2", truth="5")]).metrics
    assert (some["test/mae_truth"], some["test/mae_truth:mode"]) == (3, 5)


def test_constants(scores):
    metrics = scores.metrics
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
    assert sum(":" in name for name in metrics) == 3 * (2 * 10 + 2)


def test_groups_and_digests(scores, tmp_path):
    (groups,) = scores.groups.values()
    assert list(groups) == ["1x2", "2x1", "2x2"]
    assert groups["1x2"] == {"accuracy": 0.5, "mape": 5, "mae": 0.5, "count": 2}
    assert groups["2x1"] == {"accuracy": 0, "mape": 3980, "mae": 995, "count": 1}
    nothing = {"accuracy": 0, "mape": math.nan, "mae": math.nan, "count": 1}
    assert groups["2x2"] == pytest.approx(nothing, nan_ok=True)
    assert scores.correct["interpolate"].tolist() == [False, True, False, False]
    assert scores.ids_sha256["interpolate"] == hashlib.sha256(b"0\n1\n2\n3").hexdigest()
    assert scores.predictions_sha256 == hashlib.sha256((tmp_path / "p.jsonl").read_bytes()).hexdigest()
    assert scores.rules == {"default": 4, "paper": 1}


def test_answers_behind_a_mark(scores, score):
    rows = [
        row("test", 0, "1+1\n#### 2", "so 1 and 1\n#### 2"),
        row("test", 1, "2+2\n#### 4", "that makes 4"),
        row("test", 2, "no\n#### 0", "1 x 9 = 9\n#### 1/3"),
        row("test", 3, "no\n#### 0", ""),
    ]
    metrics = score(rows, baselines={}).metrics
    assert (metrics["test/accuracy"], metrics["test/marked"], metrics["test/unparsable"]) == (0.5, 0.5, 0.5)
    assert "test/marked@paper" not in metrics
    assert not any("marked" in name for name in scores.metrics)


def counted(key: int, right: int, size: int) -> dict[str, Any]:
    return row("test", key, "a b", "a c", tokens_correct=right, tokens_total=size, tokens_generated=size)


def test_token_accuracy(score):
    def accuracies(rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
        metrics = score(rows, **TEXT).metrics
        return [metrics.get(f"test/token_accuracy{suffix}") for suffix in ("", "@paper")]

    # The paper's rule scores ten columns of padding in each row, all of them right here.
    assert accuracies([counted(0, 1, 2), counted(1, 0, 6)]) == [1 / 8, 21 / 28]
    rows = [*(counted(key, 1, 2) for key in range(64)), counted(64, 3, 4)]
    assert accuracies(rows) == [67 / 132, (704 / 768 + 13 / 14) / 2]
    scores = score(rows, **TEXT)
    assert scores.metrics["test/exact_match"] == 0
    assert scores.groups == {}


def test_a_rule_that_is_wrong_in_a_known_way(score):
    answers = [("10", "10", "10"), ("20", "25", "25"), ("30", "33", "35"), ("40", "44", "44")]
    rows = [row("test", n, answer, said, shortcut=rule) for n, (answer, said, rule) in enumerate(answers)]
    rows += [row("validation", 0, "1", "2", shortcut="2"), row("validation", 1, "1", "1")]
    found = score(rows).metrics
    assert (found["test/accuracy:shortcut"], found["test/mae:shortcut"]) == (0.25, (0 + 5 + 5 + 4) / 4)
    assert found["test/wrong_as_shortcut"] == pytest.approx(2 / 3)
    assert not [name for name in found if name.startswith("validation/") and "shortcut" in name]


def test_the_last_number_of_a_sentence_by_hand(score):
    """Errors 0, 2 and 10; the median of training is 12, from sentences, too."""
    said = constant_baselines(["It is 10.", "2 of them cost 12 dollars.", "12"])
    pairs = [
        ("In 2 weeks it is $1,200.", "It is 1200 dollars"),
        ("5 kg", "about 7 kg."),
        ("3", "10 or 13"),
        ("9", "no"),
    ]
    rows = [row("test", key, *pair) for key, pair in enumerate(pairs)]
    metrics = score(rows, baselines=said).metrics
    assert [metrics[f"test/{name}"] for name in ("accuracy", "mae", "unparsable")] == [0.25, 4.0, 0.25]
    assert metrics["test/mae:median"] == (1188 + 7 + 9 + 3) / 4


def test_lists_of_numbers_by_hand(score):
    """Errors are 0, 1, 0 at the first position, 0, 3, 0 at the second, and 8 at the third."""
    pairs = [("1, 2", "[1, 2]"), ('{"a": 1, "b": 2}', '{"b": 5, "a": 2}'), ("7 8 9", "7 8"), ("4", "5 6"), ("3", "x")]
    rows = [row("test", key, *pair) for key, pair in enumerate([*pairs, ("0 0 1", "0 0 9")])]
    found = score(rows, metrics="numbers", baselines={})
    assert found.metrics == {
        **{"test/accuracy": pytest.approx(1 / 6), "test/unparsable": 0.5, "test/count": 6.0},
        **{"test/mae/1": pytest.approx(1 / 3), "test/mae/2": pytest.approx(1.0), "test/mae/3": 8.0},
        "test/mae": pytest.approx((1 / 3 + 1 + 8) / 3),
    }
    assert found.correct["test"].tolist() == [True, False, False, False, False, False]
    assert (found.groups, found.rules) == ({}, {"default": 1})
    # A position that no prediction has is not left out of the mean; one of more than twenty is not told.
    lost = score(rows[2:3], metrics="numbers", baselines={}).metrics
    assert all(math.isnan(lost[f"test/{name}"]) for name in ("mae", "mae/1", "mae/3"))
    many = row("test", 0, " ".join(["1"] * 25), " ".join(["1"] * 24 + ["26"]))
    metrics = score([many], metrics="numbers", baselines={}).metrics
    assert (metrics["test/mae"], metrics["test/mae/20"], "test/mae/21" in metrics) == (1.0, 0.0, False)


def test_plain_text_by_hand(score):
    """12 nats over 8 tokens and 12 bytes; four digits, of which three are right."""
    names = ("split", "id", "tokens", "ce", "numbers", "right", "error", "mean_error")
    documents = [("test", "a", 3, 3.0, 2, 1, 4.0, 1.5), ("test", "b", 5, 9.0, 2, 2, 0.0, 0.5)]
    documents += [("other", "a", 1, 0.0, 0, 0, 0.0, 0.0)]
    rows = [dict(zip(names, each, strict=True)) for each in documents]
    header = {"metrics": "likelihood", "baselines": {}, "bytes": {"test": 12, "other": 1}}
    scores = score(rows, **header, digits=True)
    found = {name.removeprefix("test/"): value for name, value in scores.metrics.items() if name.startswith("test/")}
    assert found == {
        **{"ce": 1.5, "perplexity": pytest.approx(4.4816890703), "bits_per_byte": pytest.approx(1 / math.log(2))},
        **{"digit_accuracy": 0.75, "digit_mae": 1.0, "digit_mae_mean": 0.5},
        **{"count": 2.0, "tokens": 8.0, "digits": 4.0},
    }
    assert scores.metrics["other/perplexity"] == 1.0
    assert (scores.correct, scores.rules, len(scores.ids_sha256["test"])) == ({}, {}, 64)
    assert score(rows, **header, digits=False).metrics["test/number_mae"] == 1.0


def test_speculation_by_hand() -> None:
    """Of 5 + 1 + 6 tokens in 3 + 1 + 2 passes; the first pass of each answer has no drafts, so that 3 verify some."""
    rows = [
        {"tokens": 5, "forwards": 3, "accepted": [2, 0]},
        {"tokens": 1, "forwards": 1, "accepted": [0, 0]},
        {"tokens": 6, "forwards": 2, "accepted": [1, 1]},
    ]
    assert speculation_metrics(rows) == {"tokens_per_forward": 2, "accepted/head2": 1, "accepted/head3": 1 / 3}
    alone = speculation_metrics(rows[1:2])
    assert (alone["tokens_per_forward"], math.isnan(alone["accepted/head2"])) == (1, True)


# The file of predictions.


WRITTEN = {
    "schema": 1,
    "dataset": "noisy_numbers",
    "metrics": "number",
    "decoding": {"name": "greedy", "num_beams": 1},
    "baselines": {"mode": "17", "median": "18", "mean": "18.25"},
}
TWO = [
    {"split": "test", "id": "0", "answer": "12", "prediction": " 12"},
    {"split": "test", "id": "1", "answer": "12", "prediction": "1\u2028²\n\ud800\t", "group": "3x2", "truth": "11"},
]


def fault(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_predictions(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(path), "FILE")


def test_round_trip(tmp_path):
    path = tmp_path / "run" / "predictions.jsonl"
    write_predictions(path, WRITTEN, iter(TWO))
    assert read_predictions(path) == (WRITTEN, TWO)
    assert len(path.read_bytes().splitlines()) == 3
    assert json.loads(path.read_text().splitlines()[0]) == {"header": WRITTEN}
    assert os.listdir(path.parent) == ["predictions.jsonl"]


def test_malformed(tmp_path):
    path = tmp_path / "p.jsonl"
    for records, message in (
        ([], "FILE: the file is empty"),
        ([{"header": WRITTEN}, '{"split": "test", '], "FILE:2: not a line of JSON"),
        ([{"header": WRITTEN}, "[" * 100_000], "FILE:2: not a line of JSON"),
        ([TWO[0]], "FILE:1: no header of predictions"),
        ([{"header": WRITTEN | {"schema": 2}}], "FILE:1: schema 2 is not 1"),
        ([{"header": WRITTEN}, TWO[0], {"split": "test", "id": "1", "answer": "1"}], "FILE:3: the row lacks"),
        ([{"header": WRITTEN}, TWO[0] | {"prediction": 12}], "FILE:2: 'prediction' is 12, not a text in quotes"),
        ([{"header": WRITTEN}, *TWO, TWO[0]], "FILE:4: id '0' of split 'test' is on line 2 already"),
    ):
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("".join(f"{line}\n" for line in lines))
        assert fault(path).startswith(message)
    assert fault(Path("/dev/null")).startswith("FILE: cannot read the predictions: a pipe, socket or device")
    write_predictions(path, WRITTEN, TWO)
    path.write_bytes(path.read_bytes()[:-5])
    assert fault(path) == "FILE: the file is empty or its last line is cut off; decode the run again"


# ---- scripts/evaluate.py

ROOT = Path(__file__).parents[2]
EVALUATE = runpy.run_path(str(ROOT / "scripts" / "evaluate.py"))
main = EVALUATE["main"]
JOKES = {
    "schema": 1,
    "dataset": "rjokes",
    "metrics": "number",
    "decoding": {"name": "beam"},
    "baselines": {"mode": "0", "median": "1", "mean": "1.5"},
}
HUGE = [
    {"split": "test", "id": "0", "answer": "1", "prediction": "1"},
    {"split": "test", "id": "1", "answer": "0", "prediction": "9" * 400},
]


@pytest.fixture
def outputs(tmp_path):
    write_predictions(tmp_path / "outputs" / "abc123" / "predictions.jsonl", JOKES, HUGE)
    (tmp_path / "outputs" / "unfinished").mkdir()
    return tmp_path / "outputs"


def test_json_is_strict_and_flat(outputs, capsys):
    main(["abc123", "--outputs", str(outputs), "--json"])
    printed = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    metrics = score_predictions(outputs / "abc123" / "predictions.jsonl").metrics
    assert printed == {name: json_value(value) for name, value in metrics.items()}
    assert printed["test/accuracy"] == 0.5
    assert printed["test/pearson"] == pytest.approx(-1)
    assert printed["test/mae"] == "inf"
    assert printed["test/mae@paper"] == 5e9
    assert printed["test/rmse:mode"] == 0.5**0.5


def test_an_option_of_the_default_rule_and_answers_that_the_papers_rule_misreads(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # so that each row is a line
    rows = [("2,500,000", "2.5 million"), ("945,392", "943597"), ("12", "12%"), ("3", "3")]
    lines = [{"split": "test", "id": str(n), "answer": a, "prediction": p} for n, (a, p) in enumerate(rows)]
    write_predictions(tmp_path / "p.jsonl", JOKES | {"baselines": {}}, lines)
    main([str(tmp_path / "p.jsonl"), "--rule", "default+magnitudes"])
    printed = capsys.readouterr().out.splitlines()
    cells = [line.split() for line in printed]
    assert ["metric", "default", "@paper", "@default+magnitudes"] in cells
    assert ["accuracy", "0.5", "0.5", "0.75"] in cells
    assert ["within_1_percent", "0.75", "0.5", "1"] in cells
    # Two of four answers are 0 and 392 by the paper's rule: its errors are none.
    assert ["misread", "0.5"] in cells
    assert printed[-1] == "misread: the share of right answers that the rule reads as other numbers, as 234 for 1,234"


@pytest.mark.parametrize(
    ("words", "error", "named"),
    [
        (["unfinished"], UserError, "predictions.jsonl"),
        (["abc123", "--rule", "magnitudes"], SystemExit, "2"),
        (["abc123", "--worst", "0"], UserError, "--worst 0"),
        (["abc123", "--rule", "default+percent", "--worst", "1"], UserError, "--worst"),
        (["text", "--rule", "default+percent"], UserError, "one number each"),
    ],
)
def test_what_the_command_refuses(words, error, named, outputs):
    write_predictions(outputs / "text" / "predictions.jsonl", JOKES | {"baselines": {}, "metrics": "text"}, HUGE)
    with pytest.raises(error) as caught:
        main([*words, "--outputs", str(outputs)])
    assert named in str(caught.value)


def test_predictions_that_are_not_the_record_s_are_scored_by_force_alone(outputs, capsys):
    path = outputs / "abc123" / "predictions.jsonl"
    scored = score_predictions(path).predictions_sha256
    config = {"dataset": {"name": "rjokes"}}
    record = RunRecord(id="abc123", overrides=[], config=config, seed=1, metrics={}, predictions_sha256=scored)
    write_record(path.with_name("record.json"), record)
    main([str(path)])
    assert capsys.readouterr().err == ""
    write_predictions(path, JOKES, HUGE[:1])  # as cut
    command = ["abc123", "--outputs", str(outputs), "--json"]
    with pytest.raises(UserError, match=rf"^{path}: not the predictions that .* --force scores them\.$"):
        main(command)
    assert capsys.readouterr().out == ""
    main([*command, "--force"])
    assert json.loads(capsys.readouterr().out)["test/count"] == 1
