"""Records that somebody wrote or damaged: each is read right, or one line says what is wrong."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.results import pack_bits, read_record
from ntl.results.record import DEEPEST, check, from_json, to_json

RUNS = Path(__file__).resolve().parents[2] / "results" / "runs"
EDITS = 150
GOOD: dict[str, Any] = {"schema": 1, "id": "a", "overrides": [], "config": {}, "seed": 1, "metrics": {"test/count": 9}}


def test_lists_in_lists_end_somewhere() -> None:
    value: Any = 1
    for _ in range(DEEPEST):
        value = [value]
    check("x", value, Any)
    with pytest.raises(ValueError, match="not within 20 levels"):
        check("x", [value], Any)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"config": {"model": 3}}, "'config.model' is 3, not a mapping"),
        ({"config": {"loss": {"weight": "x"}}}, "'config.loss.weight' is \"x\", not a number"),
        ({"data": {"rows": {"train": "9"}}}, "'data.rows.train' is \"9\", not a whole number"),
        ({"curves": {"loss": [[1, 2.0], [2]]}}, "'curves.loss' is no list of pairs"),
        ({"curves": {"probe_mape/1x1": [[1, 2.0]]}}, "told by epochs"),
        ({"digit_histograms": {"test": {"answer": {"last": [1] * 9}}}}, "does not count 10 digits"),
        ({"correct": {"test": pack_bits([True] * 17)}}, "hold 3 bytes, not 9 examples"),
        ({"errors": {"test": "z:99999999999:0:0"}}, "not packed errors"),
    ],
)
def test_parts_that_do_not_fit_together(part: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        from_json({**GOOD, **part}, "record.json")
    assert str(caught.value).startswith("record.json: ")
    assert "\n" not in str(caught.value)


def test_every_published_record_is_a_record() -> None:
    paths = sorted(RUNS.rglob("*.json"))
    assert len([read_record(path) for path in paths]) == len(paths) > 100


JUNK: list[Any] = [
    None, True, "", "x", -1, 3.7, 1e308, 1e-320, 2**70, [], {}, [None], {"a": {"b": []}}, "\ud800", "../x", "z:4:!:!",
    json.loads("[" * 500 + "]" * 500),
]  # fmt: skip
TOKENS = [b"1e999", b"NaN", b"-Infinity", b"9" * 5000, b"01", b"0x1", b"[" * 100_000]


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every mapping and list of a tree with each of its keys."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from places(tree[key])


def edited(text: bytes, rng: random.Random) -> bytes:
    """JSON with one to four keys deleted, renamed or of another value; one in five is damaged as bytes."""
    if rng.random() < 0.2:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice([b"", rng.randbytes(9) + text[at:], rng.choice(TOKENS) + text[at:]])
    tree = json.loads(text)
    for _ in range(rng.randint(1, 4)):
        parent, key = rng.choice(list(places(tree)))
        value = parent.pop(key)
        kind = rng.choice(["delete", "junk", "rename", "scale"])
        if kind == "junk" and isinstance(parent, dict):
            parent[key] = rng.choice(JUNK)
        elif kind == "rename" and isinstance(parent, dict):
            parent[rng.choice(["x", "", "\ud800", "test/count", f"{key}x"])] = value
        elif kind == "scale" and isinstance(parent, dict):
            parent[key] = value * 10**60 if type(value) is int else [value] * 3
        elif kind != "delete":
            parent.insert(rng.randrange(len(parent) + 1), value)
    return json.dumps(tree).encode()


def test_an_edited_record_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    """Of two groups of runs: with probes, groups and digit histograms, and without."""
    found = [path for name in ("multiplication-gpt2_tiny-*-s1-*", "noisy_numbers-*-s1-*") for path in RUNS.rglob(name)]
    path, said, rng = tmp_path / "record.json", list[str](), random.Random(0)
    for seed in range(EDITS):
        path.write_bytes(edited(sorted(found)[seed % len(found)].read_bytes(), rng))
        try:
            record = read_record(path)
        except UserError as error:
            said.append(str(error).encode().decode())
        else:
            assert to_json(from_json(to_json(record), "again")) == to_json(record)
    assert 0 < len(said) < EDITS
    assert all(str(path) in line and "\n" not in line for line in said)
