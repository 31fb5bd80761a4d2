"""Jobs of a sweep and what squeue says of them, without a Slurm."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hydra.core.utils import JobStatus
from omegaconf import OmegaConf

from ntl.config import UserError
from ntl.config.identity import plain
from ntl.launch import slurm
from ntl.launch.plan import Run
from ntl.launch.slurm import Job, job_states, launch, mark
from ntl.results import RunRecord, write_record

Look = dict[str, str] | None


class Queue:
    """Two runs in jobs 7_0 and 7_1, and what squeue says at each look; ``before`` a look something happens."""

    def __init__(self, runs: list[Run], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.submitted, self.made = runs, list[Sequence[str]](), 0
        self.looks: list[Look] = []
        self.before: dict[int, Callable[[], object]] = {}
        self.log = folder / "7_0_0_log.err"
        monkeypatch.setattr(slurm, "POLL_SECONDS", 0)
        monkeypatch.setattr(slurm, "job_states", self._look)
        monkeypatch.setattr(slurm, "_submit", self._submit)

    def _submit(self, params: Any, context: Any, job_overrides: Sequence[Sequence[str]], first: int) -> list[Job]:
        self.submitted += job_overrides
        return [Job(f"7_{n}", self.log) for n in range(len(job_overrides))]

    def _look(self) -> Look:
        self.before.pop(self.made, lambda: None)()
        self.made += 1
        return self.looks[min(self.made, len(self.looks)) - 1]

    def finish(self, run: Run) -> None:
        config = run.config
        write_record(run.record, RunRecord(id=run.id, overrides=[], config=plain(config), seed=config.seed, metrics={}))

    def launch(self) -> list[str]:
        """The error of each run."""
        results = launch({}, {"task_function": slurm.train}, [run.overrides for run in self.runs], 0)
        assert all((result.status is JobStatus.FAILED) == bool(result._return_value) for result in results)
        return [str(result._return_value or "") for result in results]


@pytest.fixture
def queue(planned: Callable[..., list[Run]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(planned(1, 2), tmp_path, monkeypatch)


RUNNING = {"7_0": "RUNNING", "7_1": "PENDING"}


def test_runs_are_done_when_they_have_a_record_and_their_job_has_ended(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = queue.runs
    # A controller that is silent, and one that forgets a job for a moment, are no end of it.
    queue.looks = [{}, RUNNING, None, RUNNING, {"7_0": "COMPLETING"}, {}, {"7_1": "RUNNING"}, {}]
    queue.before = {3: lambda: queue.finish(one), 7: lambda: queue.finish(two)}
    assert queue.launch() == ["", ""]
    assert queue.submitted == [list(run.overrides) for run in queue.runs]
    assert (one.folder / "slurm.job").read_text().split()[0] == "7_0"
    assert capsys.readouterr().out.splitlines() == [
        "2 jobs to submit, 0 in the queue already, 0 runs have a record.",
        "Follow: squeue --me, or scripts/reproduce.py --status. Cancel: scancel 7",
        f"[1/2] {one.id}, job 7_0: done",
        f"[2/2] {two.id}, job 7_1: done",
    ]


def test_a_job_without_a_record_is_lost_after_some_polls(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = queue.runs
    queue.log.write_text("srun: error: vm: task 0: Killed\nsrun: Force Terminated job step\n")
    queue.looks = [{}, {"7_1": "RUNNING"}, {}]
    killed, failed = queue.launch()
    assert killed == "job 7_0 ended without a record; last line: srun: error: vm: task 0: Killed"
    assert queue.made == 2 + slurm.LOST_AFTER

    # A run's own error is in its log; another sweep that is at the run is waited for.
    queue.log.write_text("srun: error: vm: task 0: Exited with exit code 1\nsrun: launch/slurm: Terminating\n")
    two.log.write_text("Traceback ...\nValueError: no such\tthing\n\n")
    taken = [one.folder]
    monkeypatch.setattr(slurm, "is_taken", lambda folder: folder in taken)
    queue.made = 0
    queue.before = {20: lambda: queue.finish(one)}
    done, failed = queue.launch()
    assert (done, failed) == ("", "job 7_1 ended without a record; last line: ValueError: no such thing")
    assert queue.made == 21


def test_what_is_in_the_queue_is_followed_and_what_has_a_record_is_left(queue: Queue) -> None:
    mark(queue.runs[0].folder, Job("3", queue.log))
    queue.finish(queue.runs[1])
    queue.looks = [{"3": "PENDING"}, {"3": "RUNNING"}, {}]
    queue.before = {2: lambda: queue.finish(queue.runs[0])}
    assert queue.launch() == ["", ""]
    assert queue.submitted == []


@pytest.mark.parametrize("before", [None, 0o777])
def test_the_folder_of_jobs_is_the_users_alone(
    before: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    context = {"config": config, "hydra_context": None}
    with pytest.raises(UserError, match=r"^Slurm takes no job: no Slurm$"):
        slurm._submit({"submitit_folder": f"{shared}/%j", "max_num_timeout": 1}, context, [["seed=1"]], 0)
    assert modes == [0o700]


def test_what_squeue_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "squeue"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for answer, states in (
        ("printf '12|PENDING\\n 13_0|RUNNING\\n'", {"12": "PENDING", "13_0": "RUNNING"}),
        ("exit 1", None),
    ):
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
        assert job_states() == states
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"^no squeue here: "):
        job_states()


# ---- one run on several nodes


@pytest.fixture
def task() -> Iterator[None]:
    """This process is the second task of the second of two nodes with four devices each."""
    pytest.importorskip("submitit")
    given = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "gpu[07-08]"}
    given |= {"SLURM_NTASKS": "8", "SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_PROCID": "5"}
    given |= {"SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "RANK": "9"}
    with patch.dict(os.environ, given):  # also takes back what is set meanwhile
        for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            os.environ.pop(name, None)
        yield


@pytest.mark.usefixtures("task")
def test_a_task_is_a_rank_that_sees_all_devices_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "train", lambda raw: None)
    slurm.train_in_task(OmegaConf.create())
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    assert [os.environ[name] for name in names] == ["5", "1", "8", "4", "gpu07"]
    # accelerate takes the device of the local rank, which is none of one.
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


@pytest.mark.usefixtures("task")
@pytest.mark.parametrize(
    ("error", "rank", "code"), [(KeyboardInterrupt(), 0, 1), (KeyboardInterrupt(), 5, 0), (ValueError("x"), 5, 1)]
)
def test_an_error_ends_all_ranks_and_an_interrupt_only_the_first_s_way(
    error: BaseException, rank: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(raw: Any) -> None:
        raise error

    monkeypatch.setenv("SLURM_PROCID", str(rank))
    monkeypatch.setattr(slurm, "train", train)
    with pytest.raises(SystemExit) as caught:
        slurm.train_in_task(OmegaConf.create())
    assert caught.value.code == code
    assert ("ValueError: x" in capsys.readouterr().err) is isinstance(error, ValueError)
