"""Records that somebody wrote or damaged: each is read right, or one line says what is wrong."""

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edits import edited

from ntl.config import UserError
from ntl.config.cli import report
from ntl.results import RunRecord, pack_bits, pack_errors, read_record
from ntl.results.make_tables import main as make_tables
from ntl.results.record import DEEPEST, Wrong, check, from_json, to_json

publish = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "publish.py"))["main"]
RUNS = Path(__file__).resolve().parents[2] / "results" / "runs"
EDITS = 300
GOOD: dict[str, Any] = {"schema": 1, "id": "a", "overrides": [], "config": {}, "seed": 1, "metrics": {"test/count": 9}}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, int),
        (3, float),
        (None, float | None),
        ({"a": [1.5, None]}, dict[str, list[float | None]]),
        ({"a": [{"b": True}, "ä", None, 10**300]}, Any),
    ],
)
def test_what_is_of_a_kind(value: Any, kind: Any) -> None:
    check("x", value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (True, int, "'x' is true, not a whole number"),
        (1.0, int, "'x' is 1.0, not a whole number"),
        (2**63, int, "not a whole number"),
        (True, float, "'x' is true, not a number"),
        (10**400, float, "not a number"),
        (1, str, "'x' is 1, not a text"),
        ("\ud800", str, 'ud800", not a text'),
        ([], dict[str, int], r"'x' is \[\], not a mapping"),
        ("ab", list[str], "'x' is \"ab\", not a list"),
        ({"a": [1, {"b": "c"}]}, dict[str, list[Any]], None),
        ({"a": [1, {"b": "\udfff"}]}, dict[str, list[Any]], r"'x\.a\.1\.b' is "),
        ({"\ud800": 1}, dict[str, int], "not a text"),
        ([10**400], Any, r"'x\.0' is 1000"),
    ],
)
def test_what_is_of_another_kind(value: Any, kind: Any, message: str | None) -> None:
    if message is None:
        check("x", value, kind)
    else:
        with pytest.raises(Wrong, match=message):
            check("x", value, kind)


def test_lists_in_lists_end_somewhere() -> None:
    value: Any = 1
    for _ in range(DEEPEST):
        value = [value]
    check("x", value, Any)
    with pytest.raises(Wrong, match="not within 20 levels"):
        check("x", [value], Any)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"config": {"model": 3}}, "'config.model' is 3, not a mapping"),
        ({"config": {"model": {"name": 3}}}, "'config.model.name' is 3, not a text"),
        ({"config": {"loss": {"weight": "x"}}}, "'config.loss.weight' is \"x\", not a number"),
        ({"config": {"beside": {"median": 1}}}, "'config.beside.median' is 1, not a mapping"),
        ({"data": {"rows": {"train": "9"}}}, "'data.rows.train' is \"9\", not a whole number"),
        ({"data": {"longer_than_train": {"test": "1"}}}, "'data.longer_than_train.test' is \"1\", not a number"),
        ({"curves": {"loss": [[1, 2.0], [2]]}}, "'curves.loss' is no list of pairs"),
        ({"curves": {"loss": [[None, 2.0]]}}, "'curves.loss' is no list of pairs"),
        ({"curves": {"probe_mape/1x1": [[1, 2.0]]}}, "told by epochs"),
        ({"digit_histograms": {"test": {"answer": {"last": [1] * 9}}}}, "does not count 10 digits"),
        ({"digit_histograms": {"test": {"answer": {"last": [-1] * 10}}}}, "does not count 10 digits"),
        ({"metrics": {"test/count": 9.5}, "correct": {"test": "r:00"}}, "'metrics.test/count' is 9.5, not a whole"),
        ({"correct": {"test": pack_bits([True] * 17)}}, "hold 3 bytes, not 9 examples"),
        ({"errors": {"test": pack_errors([1.0] * 9).replace("z:9", "z:8")}}, "hold 18 bytes, not 8 errors"),
        ({"errors": {"test": "z:99999999999:0:0"}}, "not packed errors"),
        ({"seed": 10**30}, "'seed' is 1000000000000000000000000000000, not a whole number"),
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


@pytest.fixture(scope="module")
def published() -> list[Path]:
    """Two groups of runs that tables compare: with probes, groups and digit histograms, and without."""
    found = [path for name in ("multiplication-gpt2_tiny-*-s1-*", "noisy_numbers-*-s1-*") for path in RUNS.rglob(name)]
    assert len(found) > 4
    return sorted(found)


@pytest.mark.parametrize("tenth", range(10))
def test_an_edited_record_is_read_or_refused_in_one_line(tenth: int, published: list[Path], tmp_path: Path) -> None:
    path, said = tmp_path / "record.json", list[str]()
    for seed in range(tenth, EDITS, 10):
        path.write_bytes(edited(published[seed % len(published)].read_bytes(), seed))
        try:
            record = read_record(path)
        except UserError as error:
            said.append(str(error).encode().decode())
        else:
            assert to_json(from_json(to_json(record), "again")) == to_json(record)
    assert 0 < len(said) < EDITS // 10
    assert all(str(path) in line and "\n" not in line for line in said)


Run = Callable[[Callable[[], None]], tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit code, standard output, standard error) of a command; in one line, where the code is 2."""

    def make(main: Callable[[], None]) -> tuple[int, str, str]:
        code = report(main)
        said = capsys.readouterr()
        assert code in (0, 2), said.err
        lines = [line for line in said.err.splitlines() if "published without its worst answers" not in line]
        assert len(lines) == (code == 2), said.err
        return code, said.out, said.err

    return make


def _numbers(cells: str) -> list[dict[str, Any]]:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} in a table")

    found = json.loads(cells, parse_constant=no_constant)
    # Notes and the finding tell of commits and machines, too.
    return [line for line in found if line["kind"] in ("cell", "difference")]


# What a table is computed from; whatever else was edited, its cells are what they were.
TOLD = {"id", "seed", "overrides", "config", "metrics", "correct", "errors", "ids_sha256", "data"}


@pytest.mark.slow
@pytest.mark.parametrize("tenth", range(10))
def test_an_edited_record_in_every_command(tenth: int, published: list[Path], tmp_path: Path, run: Run) -> None:
    """300 edits, each read by tables and publish: a right result, or one line and exit code 2."""
    outputs, runs, results = tmp_path / "outputs", tmp_path / "runs", tmp_path / "results"
    names = ["quickstart", "--scale", "tiny", "--json", "--records", str(runs), str(outputs), "--out", str(results)]
    cells: dict[Path, str] = {}
    for seed in range(tenth, EDITS, 10):
        chosen = published[seed % len(published)]
        shutil.rmtree(runs, ignore_errors=True)
        runs.mkdir()
        for other in published:
            if other != chosen:
                shutil.copy(other, runs)
        path = outputs / "run" / "record.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        if chosen not in cells:
            path.write_bytes(chosen.read_bytes())
            code, cells[chosen], _ = run(lambda: make_tables(names))
            assert code == 0
        path.write_bytes(edited(chosen.read_bytes(), seed))
        try:
            record: RunRecord | None = read_record(path)
        except UserError:
            record = None
        tables, shown, _ = run(lambda: make_tables(names))
        places = ["--outputs", str(outputs), "--out", str(tmp_path / str(seed))]
        publishing, _, _ = run(lambda places=places: publish(["run", "--dirty", *places]))
        if record is None:
            assert (tables, publishing) == (2, 2)
            continue
        assert publishing == 0
        assert to_json(read_record(tmp_path / str(seed) / f"{record.id}.json")) == to_json(record)
        if tables == 0:
            assert _numbers(shown)
            kept = read_record(chosen)
            if all(getattr(record, name) == getattr(kept, name) for name in TOLD):
                assert _numbers(shown) == _numbers(cells[chosen])
