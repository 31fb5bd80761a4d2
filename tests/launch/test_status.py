import fcntl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from fake_runs import run

from ntl.config import UserError, compose, run_id
from ntl.costs.runs import CPU, Cost, Costs
from ntl.launch import ledger
from ntl.launch.ledger import State, Status, seconds_left, status_text, statuses
from ntl.launch.plan import demands
from ntl.launch.slurm import Job, mark
from ntl.results import load_records


@pytest.fixture
def folders(small_table: Path, tmp_path: Path) -> Iterator[list[Path]]:
    """Run folders of the small table: one with a record, one that somebody is at, one with a log, one untouched."""
    (demand,) = demands([str(small_table)], "tiny", [])
    folders = []
    for overrides, state in zip(demand.missing, ("done", "running", "failed", "missing"), strict=True):
        config = compose([*overrides, f"output_dir={tmp_path}"])
        folder = tmp_path / run_id(config)
        folders.append(folder)
        if state == "done":
            run(config, overrides=[*overrides, f"output_dir={tmp_path}"])
        if state in ("running", "failed"):
            folder.mkdir()
            (folder / "metrics.jsonl").write_text('{"step": 25}\n')
        if state == "failed":
            (folder / "run.log").write_text("Traceback\nValueError: no such thing\n")
    with (tmp_path / f".{folders[1].name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folders


def found(small_table: Path, tmp_path: Path) -> list[Status]:
    return statuses(demands([str(small_table)], "tiny", load_records([tmp_path])), tmp_path)


def test_states_without_slurm(folders: list[Path], small_table: Path, tmp_path: Path) -> None:
    by_id = {each.id: each for each in found(small_table, tmp_path)}
    states = [by_id[folder.name].state for folder in folders]
    assert states == [State.done, State.running, State.failed, State.missing]
    assert by_id[folders[1].name].detail == "step 25/500"
    assert by_id[folders[2].name].detail == "ValueError: no such thing"
    demanded = demands([str(small_table)], "tiny", load_records([tmp_path]))
    # An hour each, of which two runs have made 25 of 500 steps.
    costs = SimpleNamespace(of=lambda config: Cost(3600.0, CPU, True, 0, 0))
    left = seconds_left(demanded, by_id.values(), cast(Costs, costs))
    assert left == {CPU: pytest.approx(3600 * (1 + 2 * 0.95))}
    lines = status_text(list(by_id.values()), left, 2).splitlines()
    assert lines == [
        "1 done, 1 running, 0 queued, 1 failed, 1 missing of 4 runs",
        "Hours left, from measured runs or estimates (--dry-run): 2.9 (CPU). In 2 worker processes: about 1 h 27 min.",
        f"running {by_id[folders[1].name].label}: step 25/500",
        f"failed  {by_id[folders[2].name].label}: ValueError: no such thing",
    ]


def test_states_of_jobs(
    folders: list[Path], small_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.err"
    log.write_text("srun: Killed\n")
    mark(folders[2], Job("7_0", log))
    mark(folders[3], Job("7_1", log))

    def details(states: dict[str, str]) -> list[tuple[State, str]]:
        monkeypatch.setattr(ledger, "job_states", lambda: states)
        by_id = {each.id: each for each in found(small_table, tmp_path)}
        return [(by_id[folder.name].state, by_id[folder.name].detail) for folder in folders[2:]]

    assert details({"7_0": "RUNNING", "7_1": "PENDING"}) == [
        (State.running, "step 25/500, job 7_0"),
        (State.queued, "pending, job 7_1"),
    ]
    # The job is over or forgotten: its run's own log says more than the job's.
    assert details({"7_0": "FAILED"}) == [
        (State.failed, "ValueError: no such thing"),
        (State.failed, "srun: Killed"),
    ]

    def no_slurm() -> None:
        raise UserError("no squeue here")

    monkeypatch.setattr(ledger, "job_states", no_slurm)
    assert [each.state for each in found(small_table, tmp_path)].count(State.failed) == 2
