"""How far the runs of tables are: --status."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import run

from ntl.config import UserError, compose, run_id
from ntl.launch import status as module
from ntl.launch.costs import core_seconds
from ntl.launch.plan import demands
from ntl.launch.slurm import Job, mark
from ntl.launch.status import Status, status_text, statuses
from ntl.results import RunRecord, load_records
from ntl.system.locks import lock


@pytest.fixture
def folders(small_table: Path, tmp_path: Path) -> Any:
    """Run folders of the small table: one with a record, one that somebody is at, one with a log, one untouched."""
    (demand,) = demands([str(small_table)], "tiny", [])
    places = [[*overrides, f"output_dir={tmp_path}"] for overrides in demand.missing]
    configs = [compose(words) for words in places]
    folders = [tmp_path / run_id(config) for config in configs]
    run(configs[0], overrides=places[0])
    for folder in folders[1:3]:
        folder.mkdir()
        (folder / "metrics.jsonl").write_text('{"step": 25}\n')
    (folders[2] / "run.log").write_text("Traceback\nValueError: no such thing\n")
    with lock(tmp_path / f".{folders[1].name}.lock"):
        yield folders


def found(small_table: Path, tmp_path: Path) -> list[Status]:
    return statuses(demands([str(small_table)], "tiny", load_records([tmp_path])), tmp_path)


def test_states_without_slurm(
    folders: list[Path], small_table: Path, timed_record: Callable[..., RunRecord], tmp_path: Path
) -> None:
    by_id = {each.id: each for each in found(small_table, tmp_path)}
    states = [by_id[folder.name].state for folder in folders]
    assert states == ["done", "running", "failed", "missing"]
    assert by_id[folders[1].name].detail == "step 25/500"
    assert by_id[folders[2].name].detail == "ValueError: no such thing"
    demanded = demands([str(small_table)], "tiny", load_records([tmp_path]))
    # An hour each, of which two runs have made 25 of 500 steps.
    measured = core_seconds([timed_record(3600.0, "noisy_numbers")])
    assert status_text(list(by_id.values()), demanded, measured).splitlines() == [
        "1 done, 1 running, 0 queued, 1 failed, 1 missing of 4 runs",
        "Core-hours left, as records of such runs measured them: 2.9.",
        f"running {by_id[folders[1].name].label}: step 25/500",
        f"failed  {by_id[folders[2].name].label}: ValueError: no such thing",
    ]
    assert "measured them: 3 runs not measured." in status_text(list(by_id.values()), demanded, {})


def test_states_of_jobs(
    folders: list[Path], small_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.err"
    log.write_text("srun: Killed\n")
    mark(folders[2], Job("7_0", log))
    mark(folders[3], Job("7_1", log))

    def details(states: dict[str, str]) -> list[tuple[str, str]]:
        monkeypatch.setattr(module, "job_states", lambda: states)
        by_id = {each.id: each for each in found(small_table, tmp_path)}
        return [(by_id[folder.name].state, by_id[folder.name].detail) for folder in folders[2:]]

    assert details({"7_0": "RUNNING", "7_1": "PENDING"}) == [
        ("running", "step 25/500, job 7_0"),
        ("queued", "pending, job 7_1"),
    ]
    # The job is over or forgotten: its run's own log says more than the job's.
    assert details({"7_0": "FAILED"}) == [
        ("failed", "ValueError: no such thing"),
        ("failed", "srun: Killed"),
    ]

    def no_slurm() -> None:
        raise UserError("no squeue here")

    monkeypatch.setattr(module, "job_states", no_slurm)
    assert [each.state for each in found(small_table, tmp_path)].count("failed") == 2
