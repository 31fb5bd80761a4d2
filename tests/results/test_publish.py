import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results import build_table, publish_runs, write_record, write_tables
from ntl.results.publish import write_index

ROOT = Path(__file__).resolve().parents[2]


def script(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    # Importing torch fails here, as where it is not installed: the tables must never need it.
    path, words = str(ROOT / "scripts" / name), [name, *map(str, arguments)]
    code = (
        "import runpy, sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
        f"sys.argv = {words!r}; runpy.run_path({path!r}, run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


def test_files_of_tables_are_stable(tmp_path: Path, make_record) -> None:
    tables = [build_table("quickstart", [make_record("ce", 1, {"test/mae": 1.0})])]
    paths = [*write_tables(tables, tmp_path / "out"), write_index(tables, tmp_path / "out")]
    names = ["quickstart_tiny.md", "quickstart_tiny.tex", "quickstart_tiny.csv", "README.md"]
    assert [path.name for path in paths] == names
    before = snapshot(tmp_path / "out")
    write_tables(tables, tmp_path / "out")
    write_index(tables, tmp_path / "out")
    assert snapshot(tmp_path / "out") == before
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "| quickstart | tiny | 1 | 14 | [md](quickstart_tiny.md) [tex]" in readme
    assert tables[0].markdown() in readme


def test_tables_of_hundreds_of_records_without_torch(tmp_path: Path, make_record) -> None:
    for loss in ("ce", "ce_digits", "ntl_was", "ntl_crps"):
        for seed in range(1, 101):
            curves = {"loss": [[step, 1 / (step + 1)] for step in range(200)]}
            record = make_record(loss, seed, {"test/rmse_truth": 2 + seed / 100, "test/unparsable": 0.0}, curves=curves)
            write_record(tmp_path / "runs" / f"{record.id}.json", record)
    start = time.monotonic()
    done = script("make_tables.py", "--records", tmp_path / "runs", "--out", tmp_path / "tables")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 10
    assert "quickstart, scale=tiny" in done.stdout
    assert "table2, scale=paper: no record yet" in done.stdout
    assert "2.025 ± 0.013" in (tmp_path / "tables" / "README.md").read_text()


def test_json_and_a_choice_of_tables(tmp_path: Path, make_record) -> None:
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.5}))
    options = ("--records", tmp_path / "runs", "--out", tmp_path / "out", "--json")
    done = script("make_tables.py", "quickstart", "table5", "--scale", "tiny", *options)
    assert done.returncode == 0, done.stderr
    found = {(cell["table"], cell["row"], cell["metric"]): cell for cell in json.loads(done.stdout)}
    assert found["quickstart", "CE", "test/mae"]["values"] == [1.5]
    assert {name for name, _, _ in found} == {"quickstart", "table5"}
    # An index of some tables would hide the others.
    assert not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tabel5",), "no table 'tabel5': did you mean 'table5'?"),
        (("--scale", "huge"), "no table has the scale 'huge': choose from tiny, small, paper"),
        (("quickstart", "--scale", "paper"), "no table has the scale 'paper': choose from tiny"),
        (("--records", "not/there"), "--records not/there: no such folder"),
    ],
)
def test_mistakes_of_the_user(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = script("make_tables.py", *arguments, "--out", tmp_path)
    assert (done.returncode, done.stderr.strip(), done.stdout) == (2, message, "")


def test_publish_by_id_and_by_folder(tmp_path: Path, make_record) -> None:
    outputs, target = tmp_path / "outputs", tmp_path / "runs"
    for loss in ("ce", "ntl_was"):
        record = make_record(loss, 1, {"test/mae": 1.0})
        source = write_record(outputs / record.id / "record.json", record)
        (source.parent / "predictions.jsonl").write_text("{}")
    done = script("publish.py", "ce-0.3-s1", outputs / "ntl_was-0.3-s1", "--outputs", outputs, "--out", target)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in target.iterdir()) == ["ce-0.3-s1.json", "ntl_was-0.3-s1.json"]
    assert (target / "ce-0.3-s1.json").read_bytes() == (outputs / "ce-0.3-s1" / "record.json").read_bytes()
    assert publish_runs(["ce-0.3-s1"], outputs, target) == [target / "ce-0.3-s1.json"]


def test_publish_checks_all_before_it_writes_any(tmp_path: Path, make_record) -> None:
    outputs, target = tmp_path / "outputs", tmp_path / "runs"
    write_record(outputs / "ce-0.3-s1" / "record.json", make_record("ce", 1, {}))
    (outputs / "broken").mkdir()
    (outputs / "broken" / "record.json").write_text("{")
    (outputs / "running").mkdir()
    (outputs / "running" / "config.yaml").write_text("")
    for run, message in (
        ("broken", r"record\.json:1: broken JSON"),
        ("ce-0.3-s2", r"no finished run 'ce-0\.3-s2': did you mean ce-0\.3-s1\?"),
        ("running", r"has no record\.json: the run has not ended"),
    ):
        with pytest.raises(UserError, match=message):
            publish_runs(["ce-0.3-s1", run], outputs, target)
    assert not target.exists()
    done = script("publish.py", "ce-0.3-s2", "--outputs", outputs, "--out", target)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    with pytest.raises(UserError, match="holds no finished run"):
        publish_runs(["a"], tmp_path / "none", target)


def test_published_results_are_not_replaced(tmp_path: Path, make_record) -> None:
    write_record(tmp_path / "runs" / "ce-0.3-s1.json", make_record("ce", 1, {"test/mae": 2.0}))
    write_record(tmp_path / "outputs" / "ce-0.3-s1" / "record.json", make_record("ce", 1, {"test/mae": 1.0}))
    with pytest.raises(UserError, match="a different record is there already"):
        publish_runs(["ce-0.3-s1"], tmp_path / "outputs", tmp_path / "runs")
