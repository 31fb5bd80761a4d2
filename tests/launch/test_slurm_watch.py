"""Jobs of a sweep and what squeue says of them, without a Slurm."""

import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from ntl.config import UserError, compose, run_id
from ntl.config.identity import plain
from ntl.launch import slurm
from ntl.launch.slurm import Job, JobLost, job_states, launch, mark
from ntl.results import RunRecord, write_record
from ntl.system.errors import Busy

Look = dict[str, str] | None


class Queue:
    """Runs of two seeds in jobs 7_0 and 7_1, and what squeue says at each look; ``before`` a look something happens."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        common = ["dataset=noisy_numbers", "loss=ce", f"output_dir={folder}"]
        self.overrides = [[*common, f"seed={seed}"] for seed in (1, 2)]
        self.configs = [compose(overrides) for overrides in self.overrides]
        self.folders = [folder / run_id(config) for config in self.configs]
        self.submitted: list[Sequence[str]] = []
        self.looks: list[Look] = []
        self.before: dict[int, Callable[[], object]] = {}
        self.made = 0
        self.log = folder / "logs" / "7_0_0_log.err"
        self.log.parent.mkdir()
        monkeypatch.setattr(slurm, "POLL_SECONDS", 0)
        monkeypatch.setattr(slurm, "job_states", self._look)
        monkeypatch.setattr(slurm, "_submit", self._submit)

    def _submit(self, params: Any, context: Any, job_overrides: Sequence[Sequence[str]], first: int) -> list[Job]:
        self.submitted += [list(overrides) for overrides in job_overrides]
        return [Job(f"7_{n}", self.log.with_name(f"7_{n}_0_log.err")) for n in range(len(job_overrides))]

    def _look(self) -> Look:
        self.before.pop(self.made, lambda: None)()
        states = self.looks[min(self.made, len(self.looks) - 1)]
        self.made += 1
        return states

    def finish(self, *indices: int) -> None:
        for index in indices:
            config = self.configs[index]
            record = RunRecord(id=run_id(config), overrides=[], config=plain(config), seed=config.seed, metrics={})
            write_record(self.folders[index] / "record.json", record)

    def end(self, index: int, how: str, result: object) -> None:
        """What submitit writes when a job ends: an exception that its run raised, or a traceback of its own."""
        if isinstance(result, Exception):
            returned = JobReturn(status=JobStatus.FAILED)
            returned.return_value = result
            result = returned
        self.log.with_name(f"7_{index}_0_result.pkl").write_bytes(pickle.dumps((how, result)))

    def launch(self) -> list[Any]:
        """What each run came to: None where it has ended well."""
        results = launch({"submitit_folder": f"{self.log.parent}/%j"}, {}, self.overrides, 0)
        assert [result.overrides for result in results] == self.overrides
        assert all((result.status is JobStatus.FAILED) == bool(result._return_value) for result in results)
        return [result._return_value for result in results]


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(tmp_path, monkeypatch)


RUNNING = {"7_0": "RUNNING", "7_1": "PENDING"}
ENDED = {"7_0": "COMPLETED", "7_1": "COMPLETED"}


def test_runs_are_done_when_they_have_a_record_and_their_job_has_ended(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.looks = [{}, RUNNING, RUNNING, {"7_0": "COMPLETING"}, ENDED]
    queue.before = {2: lambda: queue.finish(0), 4: lambda: queue.finish(1)}
    assert queue.launch() == [None, None]
    assert queue.submitted == queue.overrides
    assert (queue.folders[0] / "slurm.job").read_text().split()[0] == "7_0"
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "2 jobs submitted, 0 in the queue already, 0 runs have a record."
    assert said[1].endswith("Cancel: scancel 7")
    assert said[2:] == [
        "[1/2] noisy_numbers ce seed 1, job 7_0: done",
        "[2/2] noisy_numbers ce seed 2, job 7_1: done",
    ]


def test_a_job_without_a_result_is_lost_after_some_polls(queue: Queue) -> None:
    queue.log.write_text("srun: error: vm: task 0: Killed\n")
    queue.finish(1)
    queue.looks = [{}, {"7_0": "RUNNING"}, {"7_0": "FAILED"}]
    lost, done = queue.launch()
    assert isinstance(lost, JobLost)
    assert str(lost) == "job 7_0 ended as FAILED; last line: srun: error: vm: task 0: Killed"
    assert done is None
    assert queue.made == 2 + slurm.LOST_AFTER


def test_a_job_that_comes_back_and_a_controller_that_is_silent_are_waited_for(queue: Queue) -> None:
    queue.finish(1)
    queue.looks = [{}, {}, {}, {"7_0": "PENDING"}, {}, {}, None, None, None, {"7_0": "RUNNING"}, {}]
    queue.before = {10: lambda: queue.finish(0)}
    assert queue.launch() == [None, None]


def test_what_the_job_raised_is_the_error(queue: Queue) -> None:
    queue.end(0, "success", UserError("no such file"))
    queue.end(1, "error", "Traceback ...\nRuntimeError: timed out\n")
    queue.looks = [{}, ENDED]
    raised, trace = queue.launch()
    assert (type(raised), str(raised)) == (UserError, "no such file")
    assert (type(trace), str(trace)) == (JobLost, "RuntimeError: timed out")


def test_a_run_that_another_sweep_is_at_is_waited_for(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in (0, 1):
        queue.end(index, "success", Busy("another process is at this run"))
    queue.folders[1].mkdir()
    (queue.folders[1] / "run.log").write_text("ValueError: no such thing\n")
    taken = {queue.folders[0], queue.folders[1]}
    monkeypatch.setattr(slurm, "is_taken", lambda folder: folder in taken)
    queue.looks = [{}, ENDED]
    queue.before = {20: lambda: queue.finish(0), 25: lambda: taken.clear()}
    done, failed = queue.launch()
    assert done is None
    assert isinstance(failed, JobLost)  # the other one ended without a record, too
    assert str(failed) == "another job worked on it and left no record; last line: ValueError: no such thing"
    assert queue.made == 26


def test_what_is_in_the_queue_is_followed_and_what_has_a_record_is_left(queue: Queue) -> None:
    mark(queue.folders[0], Job("3", queue.log))
    queue.finish(1)
    queue.looks = [{"3": "PENDING"}, {"3": "RUNNING"}, {"3": "COMPLETED"}]
    queue.before = {2: lambda: queue.finish(0)}
    assert queue.launch() == [None, None]
    assert queue.submitted == []


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def test_a_mark_that_names_another_place_makes_no_pickle_be_read(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    log = tmp_path / "logs" / ".." / "elsewhere" / "3_0_log.err"
    log.with_name("3_0_result.pkl").write_bytes(pickle.dumps(("success", _Evil(tmp_path / "executed"))))
    mark(queue.folders[0], Job("3", log))
    queue.finish(1)
    queue.looks = [{"3": "PENDING"}, {"3": "FAILED"}]
    lost, _ = queue.launch()
    assert str(lost).startswith("job 3 ended as FAILED")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("folder", ["sweep/.submitit/%j", "sweep/.submitit"])
@pytest.mark.parametrize("before", [None, 0o777])
def test_the_folder_of_jobs_is_the_users_alone(
    folder: str, before: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitit = pytest.importorskip("submitit")
    shared = tmp_path / "sweep" / ".submitit"
    if before:
        shared.mkdir(parents=True)
        shared.chmod(before)
    modes = []

    def executor(**given: Any) -> None:
        modes.append(shared.stat().st_mode & 0o777)
        raise RuntimeError("no Slurm")

    monkeypatch.setattr(submitit, "AutoExecutor", executor)
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path / "sweep")}}})
    context = {"config": config, "hydra_context": None, "task_function": None}
    with pytest.raises(UserError, match=r"^Slurm takes no job: no Slurm$"):
        slurm._submit({"submitit_folder": str(tmp_path / folder), "max_num_timeout": 1}, context, [["seed=1"]], 0)
    assert modes == [0o700]


# ---- squeue and logs

SQUEUE = """#!/bin/sh
echo "$@" > "$(dirname "$0")/asked"
printf '12|COMPLETED\\n13_0|RUNNING\\n 13_1|PENDING\\n'
exit {code}
"""


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that answers with three jobs."""
    program = tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    program.write_text(SQUEUE.format(code=0))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def test_states_of_jobs_and_of_the_members_of_arrays(squeue: Path) -> None:
    assert job_states() == {"12": "COMPLETED", "13_0": "RUNNING", "13_1": "PENDING"}
    asked = (squeue.parent / "asked").read_text()
    assert "--states=all" in asked  # those that ended are known for a while
    assert "--array" in asked
