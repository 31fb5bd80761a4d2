"""The worst answers of a run, as `evaluate.py --worst` prints them and as a published record keeps them."""

import json
import re
import runpy
import shutil
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.decoding.predictor import predict
from ntl.evaluation import read_predictions, score_predictions, write_predictions
from ntl.results import read_record, write_record
from ntl.system.files import sha256_of

pytestmark = pytest.mark.usefixtures("no_tables")

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
main, publish = (runpy.run_path(str(SCRIPTS / f"{name}.py"))["main"] for name in ("evaluate", "publish"))


@pytest.fixture
def answered(finished: Path) -> Path:
    """A run whose answers are right but for three: 1000 away, of the other sign, and without a number."""
    path = finished / "predictions.jsonl"
    lines = path.read_text().splitlines()
    rows = [json.loads(line) for line in lines[1:]]
    for row in rows:
        row["prediction"] = row["answer"]
    rows[0]["prediction"] = "none"
    rows[1]["prediction"] = f"-{rows[1]['answer']}"
    rows[2]["prediction"] = str(1000 + int(rows[2]["answer"]))
    path.write_text("\n".join([lines[0], *map(json.dumps, rows)]) + "\n")
    record = read_record(finished / "record.json")
    scores = score_predictions(path).metrics
    metrics = record.metrics | {key: None if isnan(value) else value for key, value in scores.items()}
    record = replace(record, predictions_sha256=sha256_of(path), metrics=metrics)
    write_record(finished / "record.json", record, overwrite=True)
    return finished


def test_the_worst_answers_by_hand(answered: Path, prepared, small, capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_predictions(answered / "predictions.jsonl")[1]
    lines = (prepared(small()) / "test.jsonl").read_text().splitlines()
    texts = [json.loads(line)["question"] for line in lines]
    main([str(answered), "--worst", "20", "--json"])
    found = json.loads(capsys.readouterr().out)["test"]
    assert [line["question"] for line in found] == [texts[2], texts[1], texts[0]]
    assert [line["error"] for line in found] == [1000.0, 2.0 * float(rows[1]["answer"]), None]
    main([str(answered), "--worst", "1"])
    printed = capsys.readouterr().out
    assert texts[2] in printed
    assert texts[1] not in printed


def test_questions_are_those_of_the_answers(answered: Path) -> None:
    """An answer of another data set, such as `predict.py RUN dataset=...` writes beside, has the same id."""
    path = answered / "predictions-greedy-1-other.jsonl"
    header, rows = read_predictions(answered / "predictions.jsonl")
    write_predictions(path, header, [rows[0] | {"answer": "7"}, *rows[1:]])
    with pytest.raises(UserError, match=f"no questions: {rows[0]['id']} is not of the test questions of this run"):
        main([str(path), "--worst", "1"])


def test_a_published_record_keeps_the_worst(answered: Path) -> None:
    """Once published, a record stays as it is, whatever the predictions are by then."""
    words = [answered.name, "--outputs", str(answered.parent), "--out", str(answered.parent / "runs"), "--dirty"]
    publish(words)
    path = answered.parent / "runs" / "noisy_numbers.jsonl"
    record, content = read_record(path), path.read_bytes()
    assert [each["error"] for each in record.worst["test"]] == [1000.0, record.worst["test"][1]["error"], None]
    assert record.worst["test"][0].keys() == {"question", "answer", "prediction", "error"}
    assert sorted(map(str, record.typical["test"])) == sorted(map(str, record.worst["test"]))  # so few are wrong
    (answered / "predictions.jsonl").unlink()
    publish(words)
    assert path.read_bytes() == content


def test_the_record_of_another_run_is_refused_whatever_the_folder_is_called(
    finished: Path, copy_of, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other, out = finished.name, copy_of("seed=2"), tmp_path / "runs"
    shutil.copyfile(other / "record.json", finished / "record.json")
    folder = finished.rename(tmp_path / other.name)
    path = folder / "record.json"
    message = (
        f"{path}: the record of another run, {other.name}; config.yaml beside it is of {own}: restore it, or remove it."
    )
    for read in (
        lambda: publish([str(folder), "--out", str(out), "--dirty"]),
        lambda: publish(["--check", str(path), "--out", str(out)]),
        lambda: main([str(folder)]),
        lambda: predict(folder),
    ):
        with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
            read()
    assert not out.exists()
    capsys.readouterr()
    main([str(folder), "--json", "--force"])
    assert json.loads(capsys.readouterr().out)["test/count"] == 30


def test_edited_answers_are_not_published(answered: Path, tmp_path: Path) -> None:
    """Nor the worst ones that a record has before it is published: they may be of any answers."""
    folder, out = answered.rename(tmp_path / "elsewhere"), tmp_path / "runs"
    words, path = [str(folder), "--out", str(out), "--dirty"], folder / "predictions.jsonl"
    content, record = path.read_bytes(), read_record(folder / "record.json")
    write_record(folder / "record.json", replace(record, worst={"test": [{}]}), overwrite=True)
    path.write_bytes(content.replace(b'"none"', b'"1"'))
    for command in (words, ["--check", str(folder / "record.json")]):
        with pytest.raises(UserError, match=f"^{path}: not the predictions that record.json was computed from"):
            publish(command)
    assert not out.exists()
    path.write_bytes(content)
    edited = replace(record, metrics=record.metrics | {"test/mae": 0.5})
    write_record(folder / "record.json", edited, overwrite=True)
    with pytest.raises(UserError, match=r"test/mae is 0\.5, and its predictions give "):
        publish(words)
    assert not out.exists()
    write_record(folder / "record.json", record, overwrite=True)
    publish(words)
    assert len(read_record(out / "noisy_numbers.jsonl").worst["test"]) == 3
