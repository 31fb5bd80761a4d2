"""Tables are printed and written as soon as their runs are there; too little disk is refused before the first run."""

import csv
import errno
import fcntl
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from fake_runs import FAILS
from rich.console import Console

from ntl.config import UserError, compose
from ntl.launch import Report, complete_tables, costs
from ntl.launch.plan import Run, plan_runs
from ntl.launch.table import check_disk
from ntl.results import read_record, table_runs
from ntl.results.spec import load_table_spec
from ntl.training.checkpoints import write_manifest


@pytest.mark.slow
def test_the_quickstart_table_is_completed_printed_and_written(target: str, tmp_path: Path) -> None:
    total = len(table_runs(load_table_spec("quickstart"), "tiny"))

    def complete(out: io.StringIO, terminal: bool) -> Report:
        console = Console(file=out, force_terminal=terminal, width=200)
        return complete_tables(
            ["quickstart"], "tiny", records=[tmp_path], outputs=tmp_path, workers=2, target=target, console=console
        )

    lines = io.StringIO()
    report = complete(lines, terminal=False)
    assert len(report.done) == total == 15
    assert "[15/15]" in lines.getvalue()
    assert "15 runs trained in" in lines.getvalue()
    files = sorted(path.name for path in tmp_path.glob("quickstart*"))
    assert files == ["quickstart_tiny.csv", "quickstart_tiny.md", "quickstart_tiny.tex"]
    markdown = (tmp_path / "quickstart_tiny.md").read_text()
    assert "| 2.5 ± 1.3 |" in markdown  # seeds 1 to 4, and the fake RMSE is the seed
    assert markdown in lines.getvalue()

    bars = io.StringIO()
    again = complete(bars, terminal=True)
    assert (again.done, again.failed) == ((), ())
    assert "2.5 ± 1.3" in bars.getvalue()


def test_tables_share_runs_and_each_is_shown_when_it_is_complete(
    make_table: Callable[..., Path], target: str, tmp_path: Path
) -> None:
    first, failing, last = (str(make_table(*args)) for args in (("one", 1), ("bad", 1, FAILS, 2), ("late", 2, 3)))
    out = io.StringIO()
    names, console = [failing, first, last], Console(file=out)
    report = complete_tables(
        names, "tiny", records=[tmp_path], outputs=tmp_path, workers=1, target=target, console=console
    )
    assert (len(report.done), len(report.failed), report.exit_code) == (6, 2, 1)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("Disk: 0.0")
    assert lines[1] == "8 runs in 1 worker process."

    def line(start: str) -> int:
        (found,) = [number for number, text in enumerate(lines) if text.startswith(start)]
        return found

    ends = [number for number, text in enumerate(lines) if text.startswith("[")]
    written = {name: line(f"Written: {tmp_path / name}_tiny.md") for name in ("one", "bad", "late")}
    assert ends[1] < written["one"] < ends[2]  # its two runs come first, and it does not wait for the others
    assert ends[-1] < written["late"] < written["bad"]  # what has failures comes last
    assert len((tmp_path / "bad_tiny.md").read_text().splitlines()) > 3
    assert lines[-5].startswith("6 runs trained in ")
    assert lines[-5].endswith(f"s, 2 failed. Runs: {tmp_path}/<run id>/.")
    for ended, (told, log) in zip(report.failed, (lines[-4:-2], lines[-2:]), strict=True):
        assert told == f"{ended.run.label} failed: RuntimeError: no such thing"
        assert log == f"  log: {ended.run.log}"


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("[!.]*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.usefixtures("fake_training")
@pytest.mark.parametrize("launcher", ["", "basic"])
def test_a_table_with_overrides_is_another_one_that_says_so(
    launcher: str, small_table: Path, target: str, tmp_path: Path, capfd: Any
) -> None:
    outputs = tmp_path / "outputs"

    def complete(*overrides: str) -> tuple[Report, str]:
        console = Console(file=io.StringIO(), width=200)
        options: Any = {"launcher": launcher, "target": target, "console": console, "overrides": overrides}
        with capfd.disabled():  # what is printed must reach the descriptors
            report = complete_tables([str(small_table)], "tiny", records=[outputs], outputs=outputs, **options)
        return report, console.file.getvalue()  # type: ignore[attr-defined]

    plain, _ = complete()
    described = texts(outputs)
    assert described.keys() == {"small_tiny.md", "small_tiny.tex", "small_tiny.csv"}
    assert not any("trainer" in text for text in described.values())

    # Where and watched by whom a run is makes it no other one.
    assert len(complete("tracking=none", "device=cpu")[0].done) == 0
    assert texts(outputs) == described

    added, said = complete("trainer.weight_decay=0.02", "tracking=none", "trainer.bf16=true")
    assert len(added.done) == len(plain.done) == 4
    assert not {run.id for run in added.done} & {run.id for run in plain.done}
    for run in added.done:
        record = read_record(run.record)
        assert record.config["trainer"]["bf16"] is True
        assert {"trainer.weight_decay=0.02", "trainer.bf16=true"} <= set(record.overrides)
    both = texts(outputs)
    assert {name: both.pop(name) for name in described} == described
    assert {name.rpartition(".")[2] for name in both} == {"md", "tex", "csv"}
    (stem,) = {name.rpartition(".")[0] for name in both}
    assert stem.startswith("small_tiny_with_")
    told = "Not the table as described: every run of it was made with trainer.bf16=true, trainer.weight_decay=0.02."
    assert told in said.replace("\\_", "_")
    for text in both.values():
        assert "trainer.bf16=true" in text.replace("\\_", "_")
        assert "trainer.weight_decay=0.02" in text.replace("\\_", "_")
        assert "tracking" not in text.replace("python train.py", "")
    rows = list(csv.DictReader(io.StringIO(both[f"{stem}.csv"])))
    assert {row["added"] for row in rows} == {"trainer.bf16=true;trainer.weight_decay=0.02"}
    cells = [row for row in rows if row["kind"] == "cell"]
    assert {name for row in cells for name in row["records"].split(";")} == {run.id for run in added.done}
    assert "n = 2 seeds" in both[f"{stem}.md"]
    assert (outputs / "details" / f"{stem}.md").is_file()

    # The order of the words makes no other table, and neither table takes the other's runs.
    again, _ = complete("trainer.bf16=true", "trainer.weight_decay=0.02")
    assert (len(again.done), len(again.skipped)) == (0, 0)
    assert len(complete()[0].done) == 0
    assert texts(outputs) == described | both
    # One of the two alone is a third table.
    assert len(complete("trainer.bf16=true")[0].done) == 4


def test_a_run_that_is_done_keeps_no_checkpoint_that_a_kill_left(
    small_table: Path, target: str, tmp_path: Path
) -> None:
    def complete() -> Report:
        words = {"records": [tmp_path], "outputs": tmp_path, "workers": 1, "target": target}
        return complete_tables([str(small_table)], "tiny", console=Console(file=io.StringIO()), **words)

    first = complete().done[0].folder
    for step in (100, 200, 300):
        checkpoint = first / "checkpoints" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "weights").write_text("w")
        write_manifest(checkpoint)
    assert complete().done == ()
    assert [path.name for path in (first / "checkpoints").iterdir()] == ["checkpoint-300"]


def test_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="quickstart"):
        complete_tables(["quikstart"], "tiny", records=[], outputs=tmp_path)


# ---- disk

OVERRIDES = [["dataset=noisy_numbers", f"seed={seed}"] for seed in (1, 2)]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What is said for two runs, with so many bytes free on the disk of the outputs, which are not there yet."""
    config = compose(OVERRIDES[0])

    def make(free: int, outputs: Path, runs: list[Run] | None = None) -> list[str]:
        def usage(path: Path) -> SimpleNamespace:
            assert path.is_dir()
            return SimpleNamespace(free=free)

        monkeypatch.setattr(shutil, "disk_usage", usage)
        todo = plan_runs(OVERRIDES, outputs)[0] if runs is None else runs
        said: list[str] = []
        configs = {run.id: config for run in todo}
        check_disk(todo, configs, at_once=1, outputs=outputs, say=said.append)
        return said

    monkeypatch.setattr(costs, "_parameters", lambda config: (1_000_000_000,) * 2)
    return make


# One checkpoint of 12 GB of each run, and two more of the one that trains.
NEEDED = 4 * 12_000_000_000


def test_too_little_disk_is_refused(tell: Callable[..., list[str]], tmp_path: Path) -> None:
    outputs = tmp_path / "not" / "there"
    assert tell(NEEDED, outputs) == [f"Disk: 48 GB for the checkpoints of 2 runs, 48 GB free in {outputs}."]
    assert not outputs.exists()
    assert tell(0, tmp_path, []) == []  # nothing to run needs nothing
    with pytest.raises(
        UserError, match=r"the checkpoints of 2 runs need 48 GB of disk, and 5\.0 GB are free there; free"
    ):
        tell(5_000_000_000, tmp_path)


def test_a_place_without_locks_is_told_first(
    tell: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs themselves tell it to their logs alone."""

    no_locks = OSError(errno.ENOLCK, "no locks")
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=no_locks))
    first, second = tell(NEEDED, tmp_path)
    assert first.startswith(f"{tmp_path}: this file system has no locks")
    assert second.startswith("Disk: ")
