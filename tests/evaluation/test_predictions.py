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


COUNTS = (
    "'tokens_correct', 'tokens_total', 'tokens_generated' must be whole numbers, 0 <= correct <= total > 0, "
    "correct <= generated"
)


def write_lines(path: Path, *records: object, end: str = "\n") -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + end, encoding="utf-8")
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


def test_token_counts_are_kept(tmp_path):
    counts = {"tokens_correct": 2, "tokens_total": 3, "tokens_generated": 2}
    rows = [ROWS[0] | counts, ROWS[1] | {"tokens_correct": 0, "tokens_total": 3}]
    write_predictions(tmp_path / "p.jsonl", HEADER, rows)
    assert read_predictions(tmp_path / "p.jsonl")[1] == rows


def test_malformed_numbers_are_counted(tmp_path):
    rows = [ROWS[0] | {"malformed": 0}, ROWS[1] | {"malformed": 3}]
    write_predictions(tmp_path / "p.jsonl", HEADER, rows)
    assert read_predictions(tmp_path / "p.jsonl")[1] == rows
    for wrong in (-1, 0.5, True, "1", None):
        path = write_lines(tmp_path / "q.jsonl", {"header": HEADER}, ROWS[0] | {"malformed": wrong})
        assert fault(path) == "FILE:2: 'malformed' must be a whole number, 0 or more"


def test_a_distribution_is_kept_and_never_holds_what_json_has_no_word_for(tmp_path):
    spread = {"covered": 0.9, "sd": 2.5, "quantiles": {"0.05": -1.0, "0.5": 3.0}}
    rows = [ROWS[0] | spread, ROWS[1] | {"covered": 0.0}]
    write_predictions(tmp_path / "p.jsonl", HEADER, rows)
    assert read_predictions(tmp_path / "p.jsonl")[1] == rows
    with pytest.raises(ValueError, match="JSON"):
        write_predictions(tmp_path / "p.jsonl", HEADER, [ROWS[0] | {"sd": math.inf}])
    faults = {
        "covered": ("'covered' must be a number from 0 to 1", (-0.1, 1.1, True, "1", None, math.nan)),
        "sd": ("'sd' must be a finite number, 0 or more", (-1, math.inf, 10**400, False, [1])),
        "quantiles": ("'quantiles' must be an object of finite numbers", ([1.0], {"0.5": None}, {"0.5": math.inf})),
    }
    for key, (message, values) in faults.items():
        for wrong in values:
            path = write_lines(tmp_path / "q.jsonl", {"header": HEADER}, ROWS[0] | {key: wrong})
            assert fault(path) == f"FILE:2: {message}"


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


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"header": HEADER}, '{"split": "test", '], "FILE:2: not a line of JSON"),
        ([{"header": HEADER}, ROWS[0], ""], "FILE:3: not a line of JSON"),
        ([{"header": HEADER}, "[1]"], "FILE:2: a JSON object was expected, not list"),
        ([ROWS[0]], 'FILE:1: no header: the first line must be {"header": {...}}'),
        ([{"header": 1}], 'FILE:1: no header: the first line must be {"header": {...}}'),
        ([{"header": HEADER | {"schema": 2}}], "FILE:1: schema 2 is not 1, the one this version reads"),
        ([{"header": HEADER | {"metrics": "both"}}], "FILE:1: 'metrics' is 'both', must be one of number, text"),
        ([{"header": HEADER | {"baselines": None}}], "FILE:1: 'baselines' in the header must be dict, not NoneType"),
        ([{"header": HEADER}, ROWS[0] | {"prediction": 12}], "FILE:2: 'prediction' must be a string, not int"),
        ([{"header": HEADER}, ROWS[0] | {"truth": None}], "FILE:2: 'truth' must be a string, not NoneType"),
        ([{"header": HEADER}, ROWS[0] | {"tokens_correct": 1}], f"FILE:2: {COUNTS}"),
        ([{"header": HEADER}, ROWS[0] | {"tokens_correct": 1, "tokens_total": 1.0}], f"FILE:2: {COUNTS}"),
        ([{"header": HEADER}, ROWS[0] | {"tokens_correct": True, "tokens_total": 1}], f"FILE:2: {COUNTS}"),
        ([{"header": HEADER}, ROWS[0] | {"tokens_correct": 2, "tokens_total": 1}], f"FILE:2: {COUNTS}"),
        ([{"header": HEADER}, ROWS[0] | {"tokens_correct": 0, "tokens_total": 0}], f"FILE:2: {COUNTS}"),
        (
            [{"header": HEADER}, ROWS[0] | {"tokens_correct": 2, "tokens_total": 2, "tokens_generated": 1}],
            f"FILE:2: {COUNTS}",
        ),
        ([{"header": HEADER}, *ROWS, ROWS[0]], "FILE:4: id '0' of split 'test' is on line 2 already"),
    ],
)
def test_malformed(tmp_path, records, message):
    assert fault(write_lines(tmp_path / "predictions.jsonl", *records)).startswith(message)


@pytest.mark.parametrize("key", ["schema", "dataset", "metrics", "decoding", "baselines"])
def test_header_lacks_a_key(tmp_path, key):
    header = {name: value for name, value in HEADER.items() if name != key}
    assert fault(write_lines(tmp_path / "p.jsonl", {"header": header})) == f"FILE:1: the header lacks '{key}'"


@pytest.mark.parametrize("key", ["split", "id", "answer", "prediction"])
def test_row_lacks_a_key(tmp_path, key):
    row = {name: value for name, value in ROWS[1].items() if name != key}
    assert (
        fault(write_lines(tmp_path / "p.jsonl", {"header": HEADER}, ROWS[0], row)) == f"FILE:3: the row lacks '{key}'"
    )


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
