import json
import math
import os
import re
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.evaluation import read_predictions, write_predictions

HEADER = {
    "schema": 1,
    "dataset": "noisy_numbers",
    "metrics": "number",
    "decoding": {"name": "greedy", "num_beams": 1},
    "baselines": {"mode": "17", "median": "18", "mean": "18.25"},
}
ROWS = [
    {"split": "test", "id": "0", "answer": "12", "prediction": " 12"},
    {"split": "test", "id": "1", "answer": "12", "prediction": "1\u2028²\n\ud800\t", "group": "3x2", "truth": "11"},
]


def write_lines(path: Path, *records: object) -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def fault(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_predictions(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(path), "FILE")


def test_round_trip(tmp_path):
    path = tmp_path / "run" / "predictions.jsonl"
    write_predictions(path, HEADER, iter(ROWS))
    assert read_predictions(path) == (HEADER, ROWS)
    assert len(path.read_bytes().splitlines()) == 3
    assert json.loads(path.read_text().splitlines()[0]) == {"header": HEADER}
    assert os.listdir(path.parent) == ["predictions.jsonl"]


def test_no_value_is_written_that_json_has_no_word_for(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_predictions(tmp_path / "p.jsonl", HEADER, [ROWS[0] | {"sd": math.inf}])


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "predictions.jsonl"
    write_predictions(path, HEADER, ROWS)
    before = path.read_bytes()

    def broken():
        yield ROWS[0]
        raise RuntimeError("decoding stopped")

    with pytest.raises(RuntimeError):
        write_predictions(path, HEADER, broken())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["predictions.jsonl"]


KNOWN = {"tokens_correct": 2, "tokens_total": 3, "tokens_generated": 2, "malformed": 0, "covered": 0.9, "sd": 2.5}
KNOWN |= {"quantiles": {"0.05": -1.0}, "speculation": {"tokens": 5, "forwards": 3, "accepted": [2, 0]}}


def test_what_is_known_of_some_rows_is_kept(tmp_path):
    rows = [ROWS[0] | KNOWN, ROWS[1]]
    write_predictions(tmp_path / "p.jsonl", HEADER, rows)
    assert read_predictions(tmp_path / "p.jsonl")[1] == rows


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prediction", 12),
        ("truth", None),
    ],
)
def test_a_wrong_value_is_named(tmp_path, key, value):
    path = write_lines(tmp_path / "p.jsonl", {"header": HEADER}, ROWS[0] | KNOWN | {key: value})
    assert re.match(rf"FILE:2: .*'{key}'.* must be ", fault(path))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "FILE:1: not a line of JSON, or cut off"),
        ([{"header": HEADER}, '{"split": "test", '], "FILE:2: not a line of JSON"),
        ([{"header": HEADER}, "[1]"], "FILE:2: a JSON object was expected, not list"),
        ([ROWS[0]], "FILE:1: the first line must be"),
        ([{"header": HEADER | {"schema": 2}}], "FILE:1: schema 2 and metrics 'number': this version reads schema 1"),
        ([{"header": HEADER | {"metrics": "both"}}], "FILE:1: schema 1 and metrics 'both': this version reads"),
        ([{"header": {"schema": 1}}], "FILE:1: the first line must be"),
        ([{"header": HEADER}, ROWS[0], {"split": "test", "id": "1", "answer": "1"}], "FILE:3: the row lacks"),
        ([{"header": HEADER}, *ROWS, ROWS[0]], "FILE:4: id '0' of split 'test' is on line 2 already"),
    ],
)
def test_malformed(tmp_path, records, message):
    path = tmp_path / "p.jsonl"
    write_lines(path, *records) if records else path.write_bytes(b"")
    assert fault(path).startswith(message)


def test_cut_anywhere_in_the_last_line(tmp_path):
    path = write_lines(tmp_path / "p.jsonl", {"header": HEADER}, *ROWS)
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(start + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert fault(path).startswith("FILE:3: not a line of JSON, or cut off")
    path.write_bytes(whole[:-1])
    assert read_predictions(path) == (HEADER, ROWS)
