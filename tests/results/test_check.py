"""Records that somebody wrote or damaged: each is read right, or one line says what is wrong."""

from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.results import pack_bits, read_record
from ntl.results.record import from_json

RUNS = Path(__file__).resolve().parents[2] / "results" / "runs"
GOOD: dict[str, Any] = {"schema": 1, "id": "a", "overrides": [], "config": {}, "seed": 1, "metrics": {"test/count": 9}}


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"config": 3}, "'config' is 3, not a mapping"),
        ({"metrics": {"test/mae": "9"}}, "'metrics.test/mae' is \"9\", not a number"),
        ({"metrics": {"test/mae": float("1e999")}}, "'metrics.test/mae' is Infinity, not a number"),
        ({"metrics": {"test/mae": 10**400}}, "'metrics.test/mae' is 1000.*, not a number"),
        ({"seed": True}, "'seed' is true, not a whole number"),
        ({"curves": {"loss": [[1, 2.0], [2]]}}, "'curves.loss' is no list of pairs"),
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
