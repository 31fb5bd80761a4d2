"""The worst answers of a run, as a command prints them and as a published record keeps them."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from ntl.data.sets.noisy_numbers import NoisyNumbers
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.results.record import write_record
from ntl.system.errors import UserError
from ntl.training.errors import PUBLISHED, main, publishable

publish = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "publish.py"))["main"]


@pytest.fixture
def answered(finished: Path) -> Path:
    """A run whose answers are known: the first is 1000 away, the second has the other sign, the others are right."""
    path = finished / "predictions.jsonl"
    lines = path.read_text().splitlines()
    rows = [json.loads(line) for line in lines[1:]]
    for number, row in enumerate(rows):
        row["prediction"] = row["answer"]
        if number == 0:
            row["prediction"] = str(1000 + int(row["answer"]))
        if number == 1:
            row["prediction"] = f"-{row['answer']}"
    path.write_text("\n".join([lines[0], *map(json.dumps, rows)]) + "\n")
    return finished


def test_by_hand(answered: Path, prepared, small, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(answered), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    asked = [json.loads(line) for line in (prepared(small()) / "test.jsonl").read_text().splitlines()]
    assert found["answers"] == {"test": 30}
    assert found["kinds"] == {"test": {"sign": 1, "length": 1}}
    first, second = found["worst"]
    assert (first["id"], first["question"], first["error"]) == ("test/00000", asked[0]["question"], 1000.0)
    assert (second["question"], second["error"]) == (asked[1]["question"], 2.0 * float(asked[1]["answer"]))
    assert main([str(answered), "--n", "1"]) == 0
    printed = capsys.readouterr().out
    assert "test: 2 of 30 answers are wrong" in printed
    assert asked[0]["question"] in printed
    assert asked[1]["question"] not in printed


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--split", "train"], "--split train: .* choose from test"),
        (["--kind", "odd"], "--kind odd: choose one of no number"),
        (["--n", "-1"], "--n -1: must be 0 or more"),
    ],
)
def test_a_mistake_is_one_line(answered: Path, words: list[str], line: str) -> None:
    with pytest.raises(UserError, match=line):
        main([str(answered), *words])


def test_questions_of_other_data_are_never_shown(answered: Path) -> None:
    record = answered / "record.json"
    digest = read_record(record).data["files"]["test.jsonl"]
    record.write_text(record.read_text().replace(digest, "0" * 64))
    with pytest.raises(UserError, match="no questions for these answers: the data has changed"):
        main([str(answered)])


def test_a_published_record_keeps_the_worst(answered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once published, a record stays as it is, whatever the predictions are by then; the local one has no texts."""
    words = [answered.name, "--outputs", str(answered.parent), "--out", str(answered.parent / "runs"), "--dirty"]
    publish(words)
    path = answered.parent / "runs" / f"{answered.name}.json"
    record, content = read_record(path), path.read_bytes()
    assert [each["error"] for each in record.worst["test"]] == [1000.0, record.worst["test"][1]["error"]]
    assert record.worst["test"][0].keys() == {"question", "answer", "prediction", "error", "kind"}
    local = read_record(answered / "record.json")
    assert (local.worst, local.typical, local.mistakes) == ({}, {}, {})
    assert sorted(map(str, record.typical["test"])) == sorted(map(str, record.worst["test"]))  # so few are wrong
    assert sum(record.mistakes["test"].values()) == len(record.worst["test"])
    assert b"worst" not in (answered / "record.json").read_bytes()
    write_record(path, replace(record, worst={}, typical={}, mistakes={}), overwrite=True)  # as an earlier version did
    publish(words)
    assert path.read_bytes() == content
    (answered / "predictions.jsonl").unlink()
    publish(words)
    assert path.read_bytes() == content
    assert "without its worst answers" not in capsys.readouterr().out


def test_texts_that_the_licence_does_not_permit_are_not_published(
    answered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(publishable(answered)[0]["worst"]["test"]) == min(2, PUBLISHED)
    monkeypatch.setattr(NoisyNumbers, "publishable", False)
    found, why = publishable(answered)
    assert (list(found), why) == (["mistakes"], "the licence of noisy_numbers does not permit it")


def test_answers_without_their_file_are_published_without_texts(answered: Path) -> None:
    assert read_predictions(answered / "predictions.jsonl")[1]
    (answered / "predictions.jsonl").unlink()
    found, why = publishable(answered)
    assert found == {}
    assert "no predictions.jsonl" in why
