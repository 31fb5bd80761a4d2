import json
import os
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


def test_malformed(tmp_path):
    path = tmp_path / "p.jsonl"
    for records, message in (
        ([], "FILE: the file is empty"),
        ([{"header": HEADER}, '{"split": "test", '], "FILE:2: not a line of JSON"),
        ([{"header": HEADER}, "[" * 100_000], "FILE:2: not a line of JSON"),
        ([ROWS[0]], "FILE:1: no header of predictions"),
        ([{"header": HEADER | {"schema": 2}}], "FILE:1: schema 2 is not 1"),
        ([{"header": HEADER}, ROWS[0], {"split": "test", "id": "1", "answer": "1"}], "FILE:3: the row lacks"),
        ([{"header": HEADER}, ROWS[0] | {"prediction": 12}], "FILE:2: 'prediction' is 12, not a text in quotes"),
        ([{"header": HEADER}, *ROWS, ROWS[0]], "FILE:4: id '0' of split 'test' is on line 2 already"),
    ):
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("".join(f"{line}\n" for line in lines))
        assert fault(path).startswith(message)
    assert fault(Path("/dev/null")).startswith("FILE: cannot read the predictions: a pipe, socket or device")
    write_predictions(path, HEADER, ROWS)
    path.write_bytes(path.read_bytes()[:-5])
    assert fault(path) == "FILE: the file is empty or its last line is cut off; decode the run again"
