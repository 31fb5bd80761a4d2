"""The command line of reproduce.py: its settings, its tables, --dry-run and --status."""

import io
import json
import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_runs
import pytest
from fake_runs import FAILS
from rich.console import Console

from ntl.config import UserError
from ntl.launch import complete_tables, reproduce, status, table
from ntl.launch.plan import demands, runs_to_make
from ntl.launch.reproduce import Settings, parse_settings
from ntl.launch.slurm import Job, mark
from ntl.results.spec import table_names
from ntl.system.locks import lock


@pytest.mark.parametrize(
    ("text", "tables"),
    [("A6", ("table_a6",)), ("2, table2 ,a6", ("table2", "table_a6")), ("all", tuple(table_names()))],
)
def test_names_of_tables(text: str, tables: tuple[str, ...]) -> None:
    assert parse_settings([f"table={text}"]).names == tables


def test_every_setting(make_table: Callable[..., str]) -> None:
    assert parse_settings([]) == Settings(("quickstart",), "tiny", (), None, Path("outputs"))
    words = ["outputs=a=b", "workers=3", "scale=paper", "table=2", "seeds=2,1,2"]
    assert parse_settings(words) == Settings(("table2",), "paper", (2, 1), 3, Path("a=b"))
    own = make_table("small", 1)
    settings = parse_settings(["trainer.bf16=true", f"table={own},2", "model.path=a=b"])
    assert (settings.names, settings.overrides) == ((own, "table2"), ("trainer.bf16=true", "model.path=a=b"))
    settings = parse_settings(["launcher=slurm", "hydra.launcher.partition=gpu", "table=2"])
    assert (settings.launcher, settings.hydra) == ("slurm", ("hydra.launcher.partition=gpu",))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table=2,quikstart", "table=quikstart: no such table. Did you mean 'quickstart'?"),
        ("table=lost.yaml", "table=lost.yaml: no such table."),
        ("scale=tny", "scale=tny: no such scale; choose from"),
        ("tabel=2", "tabel=2: no such setting; choose from table=,"),
        ("a6", "a6: no such setting; choose from"),
        ("workers=0", "workers=0: a whole number, at least 1."),
        ("seeds=1,x", "seeds=1,x: whole numbers,"),
        ("scale=tiny scale=paper", "scale is set twice."),
        ("trainer.lr=1 trainer.lr=2", "trainer.lr is set twice."),
        ("seed=7", "seed=7: a table names its seeds;"),
        ("output_dir=x", "output_dir=x: say outputs=FOLDER"),
        ("resume=never", "resume=never: leave it out:"),
        ("decoding=beam", "decoding=beam: not part of a run's id,"),
        ("~loss.number=1", "~loss.number=1: no such setting;"),
        ("hydra.launcher.partition=gpu", "hydra.launcher.partition=gpu: a launcher's setting; name the launcher, too"),
        ("--json", "--json: it prints what --dry-run or --status tells"),
    ],
)
def test_mistakes_are_one_line(words: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        reproduce.main(words.split())


def test_published_records_count_unless_seeds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def fake(*names: Any, **options: Any) -> SimpleNamespace:
        calls.append({"given": names, **options})
        return SimpleNamespace(exit_code=1)

    monkeypatch.setattr(table, "complete_tables", fake)
    assert reproduce.main(["table=2,a6", "scale=small", "workers=3"]) == 1
    assert reproduce.main(["table=2", "seeds=1"]) == 1
    quickstart = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "quickstart.py"))["main"]
    assert quickstart(["--outputs", "here", "--workers", "3"]) == 1
    assert [call["records"] for call in calls] == [
        [Path("results/runs"), Path("outputs")],
        [Path("outputs")],
        [Path("here")],
    ]
    assert calls[2]["given"] == (["quickstart"], "tiny")


# ---- tables


def complete(names: list[str], outputs: Path, target: str = "", **options: Any) -> tuple[Any, list[str]]:
    out = io.StringIO()
    shared: dict[str, Any] = {"records": [outputs], "outputs": outputs, "workers": 1, "target": target}
    report = complete_tables(names, "tiny", console=Console(file=out, width=200), **shared, **options)
    return report, out.getvalue().splitlines()


def test_tables_are_completed_printed_and_written(make_table: Callable[..., str], target: str, tmp_path: Path) -> None:
    names = [make_table("one", 1, 2), make_table("bad", FAILS, 2)]
    report, lines = complete(names, tmp_path / "outputs", target)
    assert (len(report.done), len(report.failed), report.exit_code) == (4, 2, 1)
    assert lines[0].startswith("Disk: 0.0")
    assert lines[1] == "6 runs in 1 worker process."
    assert lines[-5].startswith("4 runs trained in ")
    assert lines[-5].endswith(f"s, 2 failed. Runs: {tmp_path}/outputs/<run id>/.")
    for ended, (told, log) in zip(report.failed, (lines[-4:-2], lines[-2:]), strict=True):
        assert told == f"{ended.run.id} failed: RuntimeError: no such thing"
        assert log == f"  log: {ended.run.log}"
    text = (tmp_path / "outputs" / "one_tiny.md").read_text()
    assert "1.50" in text  # seeds 1 and 2, and the fake RMSE is the seed
    assert set(text.splitlines()) <= {*lines, ""}
    assert {path.suffix for path in (tmp_path / "outputs").glob("bad_tiny.*")} == {".md", ".tex", ".csv"}

    again, lines = complete(names[:1], tmp_path / "outputs", "no.such.target")
    assert (again.done, again.exit_code, lines[-1][:14]) == ([], 0, "0 runs trained")


def test_a_table_with_settings_says_so(make_table: Callable[..., str], target: str, tmp_path: Path) -> None:
    name = make_table("small", 1, overrides=["model=gpt2_tiny", "tokenizer=digit"])
    plain, _ = complete([name], tmp_path / "outputs", target)
    added, _ = complete([name], tmp_path / "outputs", target, overrides=["tracking=none", "trainer.bf16=true"])
    assert len(plain.done) == len(added.done) == 2
    (path,) = (tmp_path / "outputs").glob("small_tiny_with_*.md")
    assert "every run of it was made with trainer.bf16=true." in path.read_text().replace("\\_", "_")
    # Where and watched by whom a run is makes it no other one.
    assert complete([name], tmp_path / "outputs", target, overrides=["device=cpu"])[0].done == []


def test_a_base_is_trained_before_its_runs(make_table: Callable[..., str], target: str, tmp_path: Path) -> None:
    base = "base='loss=ce trainer.max_steps=40@30'"
    name = make_table("arms", 1, overrides=["model=gpt2_tiny", "tokenizer=digit", base, "trainer.max_steps=50"])
    report, _ = complete([name], tmp_path / "outputs", target)
    assert [bool(run.base) for run in report.done] == [False, True, True]
    assert report.exit_code == 0


def test_too_little_disk_is_refused(
    make_table: Callable[..., str], target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"^outputs=.*: too little free disk; free some, or choose another by outputs="):
        complete([make_table("small", 1)], tmp_path / "outputs", target)
    assert not (tmp_path / "outputs").exists()


# ---- --dry-run and --status


def test_dry_run_and_status_make_nothing(
    make_table: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = make_table("small", 1, 2)

    def said(*words: str) -> Any:
        assert reproduce.main([f"table={name}", *words]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["tables"]
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in words else out

    assert "small  tiny   4     4 " in said("workers=4", "--dry-run")
    assert said("seeds=2", "--dry-run", "--json")[0]["missing"] == 2
    assert "\nEvery run with trainer.bf16=true; " in said("trainer.bf16=true", "--dry-run")
    counts, left = said("--status").splitlines()
    assert counts == "0 done, 0 running, 0 queued, 0 failed, 4 missing of 4 runs"
    assert left.startswith("Core-hours left, as records of such runs measured them: ")
    ours, plain = ({run["id"] for run in said(*words, "--status", "--json")} for words in (["trainer.bf16=true"], []))
    assert len(ours) == len(plain) == 4
    assert not ours & plain


def test_the_state_of_each_run(make_table: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    demanded = demands([make_table("small", 1, 2, 3)], "tiny", [])
    done, at_work, failed, queued, gone, _ = runs_to_make(demanded, tmp_path)
    fake_runs.run(done.config, list(done.overrides))
    for run in (at_work, failed):
        run.folder.mkdir()
        (run.folder / "metrics.jsonl").write_text('{"step": 25}\n')
    failed.log.write_text("Traceback\nValueError: no such thing\n")
    log = tmp_path / "job.err"
    log.write_text("srun: error: vm: task 0: Killed\nsrun: Force Terminated job\n")
    mark(queued.folder, Job("7_0", log))
    mark(gone.folder, Job("7_1", log))
    monkeypatch.setattr(status, "job_states", lambda: {"7_0": "PENDING"})
    with lock(tmp_path / f".{at_work.id}.lock"):
        todo = runs_to_make(demanded, tmp_path)
        found = {each.id: each for each in status.statuses(demanded, todo)}
        assert status.status_text(list(found.values()), todo, {}).splitlines() == [
            "1 done, 1 running, 1 queued, 2 failed, 1 missing of 6 runs",
            "Core-hours left, as records of such runs measured them: 5 runs not measured.",
            f"running {at_work.id}: step 25/500",
            f"queued  {queued.id}: pending, job 7_0",
            f"failed  {failed.id}: ValueError: no such thing",
            f"failed  {gone.id}: srun: error: vm: task 0: Killed",
        ]

    def no_slurm() -> None:
        raise UserError("no squeue here")

    monkeypatch.setattr(status, "job_states", no_slurm)
    assert [each.state for each in status.statuses(demanded, todo)].count("failed") == 3
