import json
import runpy
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.evaluation import score_predictions, write_predictions
from ntl.evaluation.predictions import json_value
from ntl.results import RunRecord
from ntl.results.record import write_record

ROOT = Path(__file__).parents[2]
EVALUATE = runpy.run_path(str(ROOT / "scripts" / "evaluate.py"))
main = EVALUATE["main"]
HEADER = {
    "schema": 1,
    "dataset": "rjokes",
    "metrics": "number",
    "decoding": {"name": "beam"},
    "baselines": {"mode": "0", "median": "1", "mean": "1.5"},
}
ROWS = [
    {"split": "test", "id": "0", "answer": "1", "prediction": "1"},
    {"split": "test", "id": "1", "answer": "0", "prediction": "9" * 400},
]


@pytest.fixture
def outputs(tmp_path):
    write_predictions(tmp_path / "outputs" / "abc123" / "predictions.jsonl", HEADER, ROWS)
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
    write_predictions(tmp_path / "p.jsonl", HEADER | {"baselines": {}}, lines)
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
    write_predictions(outputs / "text" / "predictions.jsonl", HEADER | {"baselines": {}, "metrics": "text"}, ROWS)
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
    write_predictions(path, HEADER, ROWS[:1])  # as cut
    command = ["abc123", "--outputs", str(outputs), "--json"]
    with pytest.raises(UserError, match=rf"^{path}: not the predictions that .* --force scores them\.$"):
        main(command)
    assert capsys.readouterr().out == ""
    main([*command, "--force"])
    assert json.loads(capsys.readouterr().out)["test/count"] == 1
