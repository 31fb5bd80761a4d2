import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.cli import report
from ntl.results import make_tables as module
from ntl.results import write_record
from ntl.results.make_tables import main as make_tables
from ntl.results.pages import BEGIN, END

publish = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "publish.py"))["main"]
ROOT = Path(__file__).resolve().parents[2]


def without_torch(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    # Importing torch fails here, as where it is not installed: the tables must never need it.
    path, words = str(ROOT / "scripts" / name), [name, *map(str, arguments)]
    code = (
        "import runpy, sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
        f"sys.argv = {words!r}; runpy.run_path({path!r}, run_name='__main__')"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


@pytest.mark.slow
def test_tables_of_hundreds_of_records_without_torch(tmp_path: Path, make_record) -> None:
    for loss in ("ce", "ce_digits", "ntl_was", "ntl_crps"):
        for seed in range(1, 101):
            curves = {"loss": [[step, 1 / (step + 1)] for step in range(200)]}
            record = make_record(loss, seed, {"test/rmse_truth": 2 + seed / 100, "test/unparsable": 0.0}, curves=curves)
            write_record(tmp_path / "runs" / f"{record.id}.json", record)
    done = without_torch("make_tables.py", "--records", tmp_path / "runs", "--out", tmp_path / "tables")
    assert done.returncode == 0, done.stderr
    assert "quickstart, scale=tiny" in done.stdout
    assert "table2, scale=paper: no record yet" in done.stdout
    page = (tmp_path / "tables" / "quickstart_tiny.md").read_text()
    assert "2.025 ± 0.013" in page
    # The same loss of every record, paired over four seeds.
    assert ": +0.000 [+0.000, +0.000] against a mean of 2.025 (n = 4 seeds; exact p = 1, " in page


def test_json_and_a_choice_of_tables(tmp_path: Path, make_record, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.5}))
    folders = ("--records", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    make_tables(["quickstart", "table5", "--scale", "tiny", *folders, "--json"])
    found = {(cell["table"], cell["row"], cell["metric"]): cell for cell in json.loads(capsys.readouterr().out)}
    assert found["quickstart", "CE", "test/mae"]["values"] == [1.5]
    assert {name for name, _, _ in found} == {"quickstart", "table5"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel5"], "no table 'tabel5': did you mean 'table5'?"),
        (["--scale", "huge"], "no table has the scale 'huge': choose from tiny, small, paper, hour"),
        (["quickstart", "--scale", "paper"], "no table has the scale 'paper': choose from tiny"),
        (["--records", "not/there"], "--records not/there: no such folder"),
        (["table2", "--pages"], "--pages: they say what all tables show; leave out the names and --scale."),
        (["--scale", "tiny", "--pages"], "--pages: they say what all tables show; leave out the names and --scale."),
    ],
)
def test_mistakes_of_the_user(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(lambda: make_tables([*arguments, "--out", str(tmp_path / "out")])) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert not (tmp_path / "out").exists()


def test_without_folders_the_repository_is_read_from_wherever_one_is(
    tmp_path: Path, make_record, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (module.RUNS, module.OUTPUTS, module.TABLES) == (
        ROOT / "results" / "runs",
        ROOT / "outputs",
        ROOT / "results" / "tables",
    )
    monkeypatch.setattr(module, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(module, "OUTPUTS", tmp_path / "none")
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.5}))
    make_tables(["quickstart", "--out", str(tmp_path / "out")])
    assert "quickstart, scale=tiny" in capsys.readouterr().out
    assert "1.500" in (tmp_path / "out" / "quickstart_tiny.md").read_text()


def test_publish_by_id_and_by_folder(tmp_path: Path, make_record, capsys: pytest.CaptureFixture[str]) -> None:
    outputs, target = tmp_path / "outputs", tmp_path / "runs"
    for loss in ("ce", "ntl_was"):
        record = make_record(loss, 1, {"test/mae": 1.0})
        write_record(outputs / record.id / "record.json", record)
    folders = ["--outputs", str(outputs), "--out", str(target)]
    publish(["ce-0.3-s1", str(outputs / "ntl_was-0.3-s1"), *folders])
    copies = [target / "ce-0.3-s1.json", target / "ntl_was-0.3-s1.json"]
    assert capsys.readouterr().out.splitlines() == [str(path) for path in copies]
    assert sorted(target.iterdir()) == copies
    record = make_record("ntl_mse", 1, {"test/mae": 1.0}, git={"commit": "0123456789", "dirty": True})
    write_record(outputs / record.id / "record.json", record)
    assert report(lambda: publish([record.id, *folders])) == 2
    assert "uncommitted changes" in capsys.readouterr().err
    publish([record.id, "--dirty", *folders])
    assert capsys.readouterr().out == f"{target / record.id}.json\n"
    assert report(lambda: publish(["ce-0.3-s2", *folders])) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.endswith("/outputs/. Did you mean 'ce-0.3-s1'?\n")) == ("", True)


@pytest.mark.parametrize("name", ["make_tables", "publish"])
def test_the_scripts_hold_no_logic(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "scripts" / f"{name}.py"), run_name="__main__")
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {name}.py")


@pytest.mark.slow
def test_the_committed_pages_are_what_the_records_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regenerated as by `make tables`, results/README.md, README and the tables are as they were."""
    shutil.copy(ROOT / "README.md", tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "results" / "README.md")
    monkeypatch.setattr(module, "README", tmp_path / "README.md")
    assert "scripts/make_tables.py --records results/runs --pages" in (ROOT / "Makefile").read_text(encoding="utf-8")
    tables = tmp_path / "results" / "tables"
    make_tables(["--records", str(ROOT / "results" / "runs"), "--out", str(tables), "--pages"])
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert len(written) > 100
    for path in written:
        assert (tmp_path / path).read_bytes() == (ROOT / path).read_bytes(), path
    assert sorted(path.relative_to(ROOT / "results") for path in (ROOT / "results" / "tables").rglob("*.*")) == sorted(
        path.relative_to(tmp_path / "results") for path in tables.rglob("*.*")
    )


@pytest.mark.slow
def test_readme_is_looked_at_before_anything_is_written(
    tmp_path: Path, make_record, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme, page, tables = tmp_path / "README.md", tmp_path / "results" / "README.md", tmp_path / "results" / "tables"
    monkeypatch.setattr(module, "PAGE", page)
    monkeypatch.setattr(module, "README", readme)
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.5}))
    words = ["--records", str(tmp_path / "runs"), "--out", str(tables), "--pages"]
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(UserError, match=r"README\.md: the results go between .*, which are not there; add them\.$"):
        make_tables(words)
    assert not page.exists()
    assert not tables.exists()
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    make_tables(words)
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n[Table 2 at `scale=hour`](")
    assert text.endswith(f"\n{END}\nafter\n")
    assert "old" not in text
    assert "- **untested**: " in text
    assert "**untested**" in page.read_text(encoding="utf-8")
