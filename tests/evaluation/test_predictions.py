import json
import math
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


@pytest.mark.parametrize(
    "known",
    [
        {"tokens_correct": 2, "tokens_total": 3, "tokens_generated": 2},
        {"tokens_correct": 0, "tokens_total": 3},
        {"malformed": 0},
        {"malformed": 3},
        {"covered": 0.9, "sd": 2.5, "quantiles": {"0.05": -1.0, "0.5": 3.0}},
        {"covered": 0.0},
        {"speculation": {"tokens": 5, "forwards": 3, "accepted": [2, 0]}},
    ],
)
def test_what_is_known_of_some_rows_is_kept(tmp_path, known):
    rows = [ROWS[0] | known, ROWS[1]]
    write_predictions(tmp_path / "p.jsonl", HEADER, rows)
    assert read_predictions(tmp_path / "p.jsonl")[1] == rows


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


def test_a_reader_of_the_old_file_is_not_disturbed(tmp_path):
    path = tmp_path / "predictions.jsonl"
    write_predictions(path, HEADER, ROWS)
    before = path.read_bytes()
    with path.open("rb") as reader:
        write_predictions(path, HEADER, ROWS[:1])
        assert reader.read() == before
    assert read_predictions(path) == (HEADER, ROWS[:1])


def test_missing_and_empty_file(tmp_path):
    path = tmp_path / "predictions.jsonl"
    assert fault(path).startswith("FILE: cannot read the predictions: No such file")
    path.write_bytes(b"")
    assert fault(path).startswith("FILE:1: the file is empty")


COUNTS = (
    "'tokens_correct', 'tokens_total', 'tokens_generated' must be whole numbers, 0 <= correct <= total > 0, "
    "correct <= generated"
)
# Key of a row -> what it must be, and values that are not.
WRONG_VALUES = {
    "prediction": ("a string, not int", [12]),
    "truth": ("a string, not NoneType", [None]),
    "malformed": ("a whole number, 0 or more", [-1, 0.5, True, "1", None]),
    "covered": ("a number from 0 to 1", [-0.1, 1.1, True, "1", None, math.nan]),
    "sd": ("a finite number, 0 or more", [-1, math.inf, 10**400, False, [1]]),
    "speculation": (
        "what ntl.decoding.speculative counts: 1 <= forwards <= tokens, accepted < forwards",
        [
            {"tokens": 5, "forwards": 3, "accepted": [3]},
            {"tokens": 2, "forwards": 3, "accepted": []},
            {"tokens": 0, "forwards": 0, "accepted": []},
            {"tokens": 5, "forwards": 3},
            {"tokens": 5, "forwards": 3, "accepted": [0.5]},
            [],
            None,
        ],
    ),
    "quantiles": ("an object of finite numbers", [[1.0], {"0.5": None}, {"0.5": math.inf}]),
}
WRONG_COUNTS = [
    {"tokens_correct": 1},
    {"tokens_correct": 1, "tokens_total": 1.0},
    {"tokens_correct": True, "tokens_total": 1},
    {"tokens_correct": 2, "tokens_total": 1},
    {"tokens_correct": 0, "tokens_total": 0},
    {"tokens_correct": 2, "tokens_total": 2, "tokens_generated": 1},
]


def without(values: dict, key: str) -> dict:
    return {name: value for name, value in values.items() if name != key}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"header": HEADER}, '{"split": "test", '], "FILE:2: not a line of JSON"),
        ([{"header": HEADER}, ROWS[0], ""], "FILE:3: not a line of JSON"),
        ([{"header": HEADER}, "[1]"], "FILE:2: a JSON object was expected, not list"),
        ([ROWS[0]], 'FILE:1: no header: the first line must be {"header": {...}}'),
        ([{"header": 1}], 'FILE:1: no header: the first line must be {"header": {...}}'),
        ([{"header": HEADER | {"schema": 2}}], "FILE:1: schema 2 is not 1, the one this version reads"),
        (
            [{"header": HEADER | {"metrics": "both"}}],
            "FILE:1: 'metrics' is 'both', must be one of number, text, likelihood",
        ),
        ([{"header": HEADER | {"baselines": None}}], "FILE:1: 'baselines' in the header must be dict, not NoneType"),
        ([{"header": HEADER}, *ROWS, ROWS[0]], "FILE:4: id '0' of split 'test' is on line 2 already"),
        *(([{"header": without(HEADER, key)}], f"FILE:1: the header lacks '{key}'") for key in HEADER),
        *(
            ([{"header": HEADER}, ROWS[0], without(ROWS[1], key)], f"FILE:3: the row lacks '{key}'")
            for key in ("split", "id", "answer", "prediction")
        ),
        *(([{"header": HEADER}, ROWS[0] | counts], f"FILE:2: {COUNTS}") for counts in WRONG_COUNTS),
        *(
            ([{"header": HEADER}, ROWS[0] | {key: value}], f"FILE:2: {key!r} must be {what}")
            for key, (what, values) in WRONG_VALUES.items()
            for value in values
        ),
    ],
)
def test_malformed(tmp_path, records, message):
    said = fault(write_lines(tmp_path / "p.jsonl", *records))
    assert said.partition(" (")[0] == message  # before the parser's own words


def test_cut_anywhere_in_the_last_line(tmp_path):
    path = write_lines(tmp_path / "p.jsonl", {"header": HEADER}, *ROWS)
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(start + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert fault(path) == "FILE:3: the last line is cut off; decode the run again"
    path.write_bytes(whole[:-1])
    assert read_predictions(path) == (HEADER, ROWS)


def test_bytes_that_are_no_text(tmp_path):
    path = write_lines(tmp_path / "p.jsonl", {"header": HEADER}, ROWS[0])
    path.write_bytes(path.read_bytes().replace(b" 12", b"\xff12"))
    assert fault(path).startswith("FILE:2: not a line of JSON")


def test_ids_may_repeat_across_splits(tmp_path):
    path = write_lines(tmp_path / "p.jsonl", {"header": HEADER}, ROWS[0], ROWS[0] | {"split": "validation"})
    assert len(read_predictions(path)[1]) == 2
