"""Tables are printed and written as soon as their runs are there; too little disk is refused before the first run."""

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runs import FAILS
from rich.console import Console

from ntl.config import UserError, compose
from ntl.launch import Report, complete_tables, costs
from ntl.launch.plan import plan_runs
from ntl.launch.table import check_disk
from ntl.results import read_record, table_runs
from ntl.results.spec import load_table_spec
from ntl.training.checkpoints import write_manifest


@pytest.mark.slow
def test_the_quickstart_table_is_completed_printed_and_written(target: str, tmp_path: Path) -> None:
    total = len(table_runs(load_table_spec("quickstart"), "tiny"))
    out = io.StringIO()
    options: Any = {"records": [tmp_path], "outputs": tmp_path, "workers": 2, "target": target}
    report = complete_tables(["quickstart"], "tiny", console=Console(file=out, width=200), **options)
    assert len(report.done) == total == 15
    files = sorted(path.name for path in tmp_path.glob("quickstart*"))
    assert files == ["quickstart_tiny.csv", "quickstart_tiny.md", "quickstart_tiny.tex"]
    markdown = (tmp_path / "quickstart_tiny.md").read_text()
    assert "| 2.5 ± 1.3 |" in markdown  # seeds 1 to 4, and the fake RMSE is the seed
    assert markdown in out.getvalue()

    bars = io.StringIO()
    console = Console(file=bars, force_terminal=True, width=200)
    again = complete_tables(["quickstart"], "tiny", console=console, **options)
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
def test_a_table_with_overrides_is_another_one_that_says_so(small_table: Path, tmp_path: Path, capfd: Any) -> None:
    outputs = tmp_path / "outputs"

    def complete(*overrides: str) -> Report:
        options: Any = {"launcher": "basic", "console": Console(file=io.StringIO()), "overrides": overrides}
        with capfd.disabled():  # what is printed must reach the descriptors
            return complete_tables([str(small_table)], "tiny", records=[outputs], outputs=outputs, **options)

    plain = complete()
    described = texts(outputs)
    assert described.keys() == {"small_tiny.md", "small_tiny.tex", "small_tiny.csv"}
    # Where and watched by whom a run is makes it no other one.
    assert len(complete("tracking=none", "device=cpu").done) == 0
    assert texts(outputs) == described

    added = complete("trainer.weight_decay=0.02", "tracking=none", "trainer.bf16=true")
    assert len(added.done) == len(plain.done) == 4
    assert not {run.id for run in added.done} & {run.id for run in plain.done}
    for run in added.done:
        assert {"trainer.weight_decay=0.02", "trainer.bf16=true"} <= set(read_record(run.record).overrides)
    both = texts(outputs)
    assert {name: both.pop(name) for name in described} == described
    (stem,) = {name.rpartition(".")[0] for name in both}
    assert stem.startswith("small_tiny_with_")
    told = "Not the table as described: every run of it was made with trainer.bf16=true, trainer.weight_decay=0.02."
    assert told in both[f"{stem}.md"].replace("\\_", "_")
    rows = list(csv.DictReader(io.StringIO(both[f"{stem}.csv"])))
    assert {row["added"] for row in rows} == {"trainer.bf16=true;trainer.weight_decay=0.02"}
    cells = [row for row in rows if row["kind"] == "cell"]
    assert {name for row in cells for name in row["records"].split(";")} == {run.id for run in added.done}

    # The order of the words makes no other table, and neither table takes the other's runs.
    assert len(complete("trainer.bf16=true", "trainer.weight_decay=0.02").done) == 0
    assert len(complete().done) == 0
    assert texts(outputs) == described | both


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


# ---- disk


def test_too_little_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of a model of 12 GB need one checkpoint each and two more of the one that trains."""
    overrides = [["dataset=noisy_numbers", f"seed={seed}"] for seed in (1, 2)]
    monkeypatch.setattr(costs, "_parameters", lambda config: (1_000_000_000,) * 2)
    outputs, said, free = tmp_path / "not" / "there", [], 0
    todo, _ = plan_runs(overrides, outputs)
    configs = {run.id: compose(overrides[0]) for run in todo}

    def check() -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        check_disk(todo, configs, at_once=1, outputs=outputs, say=said.append)

    free = 4 * 12_000_000_000
    check()
    assert said == [f"Disk: 48 GB for the checkpoints of 2 runs, 48 GB free in {outputs}."]
    assert not outputs.exists()
    free = 5_000_000_000
    with pytest.raises(UserError, match=r"checkpoints of 2 runs need 48 GB of disk, and 5\.0 GB are free there; free"):
        check()
