"""The command line of reproduce.py: its settings, its tables, --dry-run and --status."""

import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_runs
import pytest
from commands import ROOT
from fake_runs import FAILS, NO_RECORD

from ntl.config import UserError
from ntl.launch import table
from ntl.launch.plan import demands, to_make
from ntl.launch.table import status
from ntl.results.spec import table_names
from ntl.system.files import lock

MakeTable = Callable[..., str]
REPRODUCE = runpy.run_path(str(ROOT / "scripts" / "reproduce.py"))
main, parse_settings = REPRODUCE["main"], REPRODUCE["parse_settings"]


def test_every_setting(make_table: MakeTable) -> None:
    default = {"names": ["quickstart"], "scale": "tiny", "outputs": Path("outputs")}
    assert parse_settings([]) == default
    words = ["outputs=a=b", "workers=3", "scale=paper", "table=2", "seeds=2,1,2"]
    given = {"names": ["table2"], "scale": "paper", "outputs": Path("a=b"), "workers": 3, "seeds": [2, 1]}
    assert parse_settings(words) == given
    own = make_table("small", 1)
    added = ["trainer.bf16=true", "model.path=a=b"]
    assert parse_settings([*added, f"table={own},2"]) == default | {"names": [own, "table2"], "overrides": added}
    slurm = {"names": ["table2"], "launcher": "slurm", "hydra": ["hydra.launcher.partition=gpu"]}
    assert parse_settings(["launcher=slurm", *slurm["hydra"], "table=2"]) == default | slurm
    for text, names in (("2, table2 ,a6", ["table2", "table_a6"]), ("A6", ["table_a6"]), ("all", table_names())):
        assert parse_settings([f"table={text}"])["names"] == list(names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table=2,quikstart", "table=quikstart: no such table. Did you mean 'quickstart'?"),
        ("scale=tny", "scale=tny: no such scale; choose from"),
        ("tabel=2", "tabel=2: no such setting; choose from table=,"),
        ("a6", "a6: no such setting; choose from"),
        ("workers=0", "workers=0: whole numbers above 0"),
        ("seeds=1,x", "seeds=1,x: whole numbers above 0"),
        ("trainer.lr=1 trainer.lr=2", "trainer.lr is set twice."),
        ("seed=7", "seed=7: a table names its seeds;"),
        ("output_dir=x", "output_dir=x: say outputs=FOLDER"),
        ("resume=never", "resume=never: leave it out:"),
        ("decoding=beam", "decoding=beam: not part of a run's id,"),
        ("~loss.squash=1", "~loss.squash=1: no such setting;"),
        ("hydra.launcher.partition=gpu", "hydra.launcher.partition=gpu: a launcher's setting; name the launcher, too"),
    ],
)
def test_mistakes_are_one_line(words: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        main(words.split())


def test_published_records_count_unless_seeds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(table, "complete_tables", lambda *names, **given: calls.append({"given": names, **given}) or 1)
    assert main(["table=2,a6", "scale=small", "workers=3"]) == main(["table=2", "seeds=1"]) == 1
    quickstart = runpy.run_path(str(ROOT / "scripts" / "quickstart.py"))["main"]
    assert quickstart(["--outputs", "here", "--workers", "3", "--seeds", "1"]) == 1
    published = [ROOT / "results" / "runs", Path("outputs")]
    assert [call["records"] for call in calls] == [published, published[1:], [Path("here")]]
    assert (calls[2]["given"], calls[2]["seeds"]) == ((["quickstart"], "tiny"), [1])


# ---- tables


Complete = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def complete(capsys: pytest.CaptureFixture[str]) -> Complete:
    """The exit code of ``complete_tables``, and the lines that it printed."""

    def call(names: list[str], outputs: Path, **options: Any) -> tuple[int, list[str]]:
        code = table.complete_tables(names, "tiny", records=[outputs], outputs=outputs, workers=2, **options)
        return code, capsys.readouterr().out.splitlines()

    return call


@pytest.mark.slow
@pytest.mark.usefixtures("faked")
def test_tables_are_completed_printed_and_written(complete: Complete, make_table: MakeTable, tmp_path: Path) -> None:
    names, outputs = [make_table("one", 1, 2), make_table("bad", FAILS, NO_RECORD, 2)], tmp_path / "outputs"
    code, lines = complete(names, outputs)
    assert code == 1
    assert lines[0].startswith("Disk: 0.0")
    assert lines[1] == "8 runs in 2 worker processes."
    assert lines[-9].startswith("4 runs trained in ")
    assert lines[-9].endswith(f"s, 4 failed. Runs: {outputs}/<run id>/.")
    errors = ["RuntimeError: no such"] * 2 + ["it ended without a record"] * 2
    for told, log, error in zip(lines[-8::2], lines[-7::2], errors, strict=True):
        name = told.split()[0]
        assert (told, log) == (f"{name} failed: {error}", f"  log: {outputs}/{name}/run.log")
    text = (outputs / "one_tiny.md").read_text()
    assert "| 1.000, 2.000 |" in text  # seeds 1 and 2, and the fake RMSE is the seed
    assert set(text.splitlines()) <= {*lines, ""}
    assert {path.suffix for path in outputs.glob("bad_tiny.*")} == {".md", ".csv"}

    code, lines = complete(names[:1], outputs)
    assert (code, lines[-1][:14]) == (0, "0 runs trained")


@pytest.mark.slow
@pytest.mark.usefixtures("faked")
def test_a_table_with_settings_says_so(complete: Complete, make_table: MakeTable, tmp_path: Path) -> None:
    name, outputs = make_table("small", 1), tmp_path / "outputs"
    base = "base='loss=ce trainer.max_steps=40@30'"  # whose checkpoint the fake runs ask for
    arms = make_table("arms", 1, overrides=["model=gpt2_tiny", "tokenizer=digit", base, "trainer.max_steps=50"])
    _, lines = complete([arms], outputs)
    assert lines[-1].startswith("3 runs trained")
    added = ["tracking=none", "trainer.bf16=true"]
    _, lines = complete([name], outputs, overrides=added)
    assert lines[-1].startswith("2 runs trained")
    (path,) = outputs.glob("small_tiny_with_*.md")
    assert "every run of it was made with trainer.bf16=true." in path.read_text().replace("\\_", "_")
    # Where a run is makes it no other one.
    assert complete([name], outputs, overrides=[*added, "device=cpu"])[1][-1].startswith("0 runs trained")


def test_too_little_disk_is_refused(
    complete: Complete, make_table: MakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"^outputs=.*: too little free disk; free some, or choose another by outputs="):
        complete([make_table("small", 1)], tmp_path / "outputs")


# ---- --dry-run and --status


def test_dry_run_and_status_make_nothing(
    make_table: MakeTable, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(main.__globals__, "PUBLISHED", tmp_path / "none")
    name, other = make_table("small", 1, 2), make_table("other", 2, 3)

    def said(*words: str) -> str:
        assert main([f"table={name}", *words]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["tables"]
        return capsys.readouterr().out

    assert "small  tiny   4     4 " in said("workers=4", "--dry-run")
    assert "small  tiny   2     2 " in said("seeds=2", "--dry-run")
    assert "\nEvery run with trainer.bf16=true; " in said("trainer.bf16=true", "--dry-run")
    # Runs of both tables are counted once, and steps of epochs are not known before the data is prepared.
    epochs = f"trainer.epochs=2 data_dir={tmp_path}".split()
    assert main([f"table={name},{other}", "--dry-run", *epochs]) == 0
    rows = [line.split()[:5] for line in capsys.readouterr().out.splitlines()[1:4]]
    of_two = [["small", "tiny", "4", "4", "unknown"], ["other", "tiny", "4", "4", "unknown"]]
    assert rows == [*of_two, ["all", "tiny", "6", "6", "unknown"]]
    counts, left = said("--status").splitlines()
    assert counts == "0 done, 0 running, 0 failed, 4 missing of 4 runs"
    assert left.startswith("Core-hours left, as records of such runs measured them: ")


def test_the_state_of_each_run(make_table: MakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    demanded = demands([make_table("small", 1, 2)], "tiny", [], tmp_path)
    done, at_work, failed, missing = to_make(demanded[0].missing)
    fake_runs.run(done.config, list(done.overrides))
    for run in (at_work, failed):
        run.folder.mkdir()
        (run.folder / "metrics.jsonl").write_text('{"step": 25}\n')
    failed.log.write_text("Traceback\nValueError: no such thing\n\n")
    with lock(tmp_path / f".{at_work.id}.lock"):
        todo = to_make(demanded[0].missing)
        said = status(demanded, todo, {})
    assert todo[-1] == missing
    assert said.splitlines() == [
        "1 done, 1 running, 1 failed, 1 missing of 4 runs",
        "Core-hours left, as records of such runs measured them: 0 + runs not measured: 3.",
        f"running {at_work.id}: step 25/500",
        f"failed  {failed.id}: ValueError: no such thing",
    ]
