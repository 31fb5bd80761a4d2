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
from ntl.results.claims import Whose, load_claims
from ntl.results.make_tables import FINDINGS
from ntl.results.make_tables import main as make_tables

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
    assert "2.025 ± 0.013" in (tmp_path / "tables" / "quickstart_tiny.md").read_text()
    # The same loss of every record, paired over four seeds.
    index = (tmp_path / "tables" / "README.md").read_text()
    assert ": +0.000 [+0.000, +0.000] against a mean of 2.025 (n = 4 seeds; exact p = 1, " in index


def test_json_and_a_choice_of_tables(tmp_path: Path, make_record, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.5}))
    folders = ("--records", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    make_tables(["quickstart", "table5", "--scale", "tiny", *folders, "--json"])
    found = {(cell["table"], cell["row"], cell["metric"]): cell for cell in json.loads(capsys.readouterr().out)}
    assert found["quickstart", "CE", "test/mae"]["values"] == [1.5]
    assert {name for name, _, _ in found} == {"quickstart", "table5"}
    # An index of some tables would hide the others.
    assert not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel5"], "no table 'tabel5': did you mean 'table5'?"),
        (["--scale", "huge"], "no table has the scale 'huge': choose from tiny, small, paper, hour"),
        (["quickstart", "--scale", "paper"], "no table has the scale 'paper': choose from tiny"),
        (["--records", "not/there"], "--records not/there: no such folder"),
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
def test_what_the_texts_say_of_results_is_what_the_records_say(tmp_path: Path) -> None:
    """Regenerated as by `make tables`, every page is as it was; no result is typed by hand (test_marks.py)."""
    pages = ["README.md", "results/LOG.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--records results/runs --readme README.md results/LOG.md docs/*.md" in recipe
    for name in pages:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    tables = tmp_path / "results" / "tables"
    words = ["--records", str(ROOT / "results" / "runs"), "--out", str(tables), "--readme"]
    make_tables([*words, *(str(tmp_path / name) for name in pages)])
    for name in [*pages, "results/claims.md"]:
        assert (tmp_path / name).read_text(encoding="utf-8") == (ROOT / name).read_text(encoding="utf-8"), name
    readme = tmp_path / "README.md"
    _, _, rest = readme.read_text(encoding="utf-8").partition(f"<!-- {FINDINGS} -->")
    between, ended, _ = rest.partition(f"<!-- end of {FINDINGS} -->")
    assert ended
    assert between.count("\n- **") == sum(claim.whose is not Whose.beyond for claim in load_claims())


@pytest.mark.slow
def test_pages_are_looked_at_before_anything_is_written(tmp_path: Path, make_record) -> None:
    readme, tables = tmp_path / "README.md", tmp_path / "tables"
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.5}))
    words = ["--records", str(tmp_path / "runs"), "--out", str(tables), "--readme", str(readme)]
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(UserError, match=r"README\.md: the findings go between .*, which are not there; add them\.$"):
        make_tables(words)
    marks = f"<!-- {FINDINGS} --><!-- end of {FINDINGS} -->"
    readme.write_text(f"{marks}<!-- finding: {{table: tabel2}} --><!-- end of finding -->", encoding="utf-8")
    with pytest.raises(UserError, match=r"README\.md: <!-- finding -->: no table 'tabel2': choose from evidence, "):
        make_tables(words)
    assert not tables.exists()
    readme.write_text(marks, encoding="utf-8")
    with pytest.raises(UserError, match="--readme: it gets what all tables show"):
        make_tables(["table2", *words])
    make_tables(words)
    assert "- **untested**: " in readme.read_text(encoding="utf-8")
    assert (tmp_path / "claims.md").is_file()
