"""A sweep as one Slurm job array, submitted by hydra-submitit-launcher and watched here until it ends.

The launcher itself would wait forever for a killed job where Slurm has no accounting (sacct), and would submit a run
again that is in the queue already.
"""

import pickle
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from ntl.launch.plan import Run, last_lines, plan_runs
from ntl.launch.worker import error_line, train
from ntl.results.sweep import show_sweep
from ntl.system.errors import Busy, UserError, needs
from ntl.training.folder import is_taken

# File in a run's folder: the job that was submitted for it, and that job's log.
MARK = "slurm.job"
# In any other state a job has ended (manual of squeue, JOB STATE CODES).
ACTIVE = {
    *("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *("RESV_DEL_HOLD", "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "PREEMPTED"),
}
# Lines that srun prints after the one with the reason.
NOISE = ("srun: Force Terminated", "srun: Job step aborted", "srun: forcing job termination")
POLL_SECONDS = 2.0
# Polls in a row without a job before it counts as lost: a restarting controller forgets jobs for a moment.
LOST_AFTER = 3
# Settings of hydra-submitit-launcher that submitit has for every cluster; the others are specific to Slurm.
SHARED = {
    *("timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node"),
    *("mem_gb", "nodes", "name", "stderr_to_stdout"),
}


@dataclass(frozen=True)
class Job:
    """``id`` as squeue shows it: 12, or 12_3 in an array; ``log`` is its standard error."""

    id: str
    log: Path


def mark(folder: Path, job: Job) -> None:
    """Write into a run's folder which job was submitted for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text(f"{job.id}\n{job.log}\n", encoding="utf-8")


def marked(folder: Path) -> Job | None:
    """The job that was last submitted for a run; None without one."""
    try:
        identifier, log = (folder / MARK).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return Job(identifier, Path(log))


def job_states() -> dict[str, str] | None:
    """Job id -> state of all jobs of this user, from squeue, as sacct may not be available; None if it does not answer.

    UserError: squeue is not installed.
    """
    command = ["squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%T"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except FileNotFoundError as error:
        raise UserError("no squeue here: a Slurm launcher works on a machine that can submit jobs.") from error
    except subprocess.TimeoutExpired:
        return None
    if answer.returncode:
        return None
    return dict(line.strip().split("|") for line in answer.stdout.splitlines() if "|" in line)


def last_line(log: Path) -> str:
    """The last line of a log that is neither empty nor noise of srun; empty where there is none."""
    try:
        lines = [line.decode(errors="replace") for line in last_lines(log)]
    except OSError:
        return ""
    useful = (line for line in reversed(lines) if line.strip() and not line.startswith(NOISE))
    return " ".join(next(useful, "").split())[:300]


class JobLost(Exception):
    """A job ended without a result: killed, out of memory, cancelled, or its node is gone."""


def launch(
    params: dict[str, Any], context: dict[str, Any], job_overrides: Sequence[Sequence[str]], first: int
) -> list[JobReturn]:
    """Make every run that has no record, in a new job or in the one that is in the queue for it already.

    Args:
        params: the settings of ``config/hydra/launcher/slurm.yaml``.
        context: the arguments of a launcher's ``setup``.
        first: the number of the sweep's first job.

    Raises:
        UserError: submitit or Slurm is not installed, or Slurm refuses the jobs.
        KeyboardInterrupt: the jobs continue; how to follow or cancel them is printed first.
    """
    planned = [plan_runs([overrides]) for overrides in job_overrides]
    todo = {index: runs[0] for index, (runs, _) in enumerate(planned) if runs}
    states = job_states() or {}
    jobs = {index: job for index, run in todo.items() if (job := marked(run.folder)) and states.get(job.id) in ACTIVE}
    followed = len(jobs)
    new = [index for index in todo if index not in jobs]
    if new:
        submitted = _submit(params, context, [job_overrides[index] for index in new], first)
        for index, job in zip(new, submitted, strict=True):
            mark(todo[index].folder, job)
            jobs[index] = job
    _say(f"{len(new)} jobs submitted, {followed} in the queue already, {len(planned) - len(todo)} runs have a record.")
    private = _private_part(params.get("submitit_folder", ""))
    errors = _Watch(todo, jobs, private).wait() if jobs else {}
    if context.get("task_function") not in (None, train):  # reproduce.py prints tables of its own
        show_sweep([run.folder for parts in planned for runs in parts for run in runs])
    return [_result(overrides, errors.get(index)) for index, overrides in enumerate(job_overrides)]


def _result(overrides: Sequence[str], error: Exception | None) -> JobReturn:
    result = JobReturn(overrides=list(overrides), status=JobStatus.FAILED if error else JobStatus.COMPLETED)
    result.return_value = error
    return result


def _submit(
    params: dict[str, Any], context: dict[str, Any], job_overrides: Sequence[Sequence[str]], first: int
) -> list[Job]:
    with needs("slurm"):
        import submitit
        from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
        from submitit.core.utils import FailedJobError
    plain: Any = OmegaConf.to_container(OmegaConf.create(params), resolve=True)
    inner = SlurmLauncher(**plain)
    inner.setup(**context)
    folder, timeouts = plain.pop("submitit_folder"), plain.pop("max_num_timeout")
    Path(context["config"].hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
    _make_private(_private_part(folder))
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=timeouts)
        executor.update_parameters(**{key if key in SHARED else f"slurm_{key}": plain[key] for key in plain})
        state = Singleton.get_state()
        rows = [
            (list(overrides), "hydra.sweep.dir", number, f"job_id_for_{number}", state)
            for number, overrides in enumerate(job_overrides, start=first)
        ]
        jobs = executor.map_array(inner, *zip(*rows, strict=True))
    except (FailedJobError, RuntimeError) as error:
        raise UserError(f"Slurm takes no job: {' '.join(str(error).split())[:300]}") from error
    return [Job(job.job_id, Path(job.paths.stderr)) for job in jobs]


def _private_part(folder: str) -> Path:
    """The part of ``submitit_folder`` that all jobs share: everything before the first ``%``, as in ``.../%j``."""
    before, percent, _ = folder.partition("%")
    return Path(before if not percent or before.endswith("/") else before.rpartition("/")[0])


def _make_private(folder: Path) -> None:
    # Jobs and their results are pickles: whoever can write here can run code as this user.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise UserError(f"submitit_folder {folder}: {error.strerror}; it must be a folder of yours alone.") from error


class _Watch:
    """Waits for jobs and prints how each ended. Only pickles in ``private``, this command's own folder, are read."""

    def __init__(self, runs: dict[int, Run], jobs: dict[int, Job], private: Path) -> None:
        self._runs, self._jobs, self._private = runs, jobs, private
        self._ended: dict[int, Exception | None] = {}
        self._gone = dict.fromkeys(jobs, 0)

    def wait(self) -> dict[int, Exception | None]:
        ids = " ".join(sorted({job.id.split("_")[0] for job in self._jobs.values()}))
        try:
            _say(f"Follow: squeue --me, or scripts/reproduce.py --status. Cancel: scancel {ids}")
            while waiting := [index for index in self._jobs if index not in self._ended]:
                time.sleep(POLL_SECONDS)
                states = job_states()
                for index in waiting if states is not None else ():
                    self._look(index, (states or {}).get(self._jobs[index].id, ""))
        except KeyboardInterrupt:
            _say(f"The jobs go on; the same command follows them again. Cancel: scancel {ids}")
            raise
        return self._ended

    def _look(self, index: int, state: str) -> None:
        run, job = self._runs[index], self._jobs[index]
        self._gone[index] = 0 if state in ACTIVE else self._gone[index] + 1
        # Files of another machine may appear later than the new state, and an unknown job may reappear.
        if run.is_done and state not in ACTIVE:
            error = None
        elif self._gone[index] < LOST_AFTER:
            return
        else:
            error = self._why(run, job, state)
            # A job of another sweep is making the run: wait for its record, or until it has ended.
            if isinstance(error, Busy):
                if is_taken(run.folder):
                    return
                error = JobLost(f"another job worked on it and left no record; last line: {last_line(run.log)}")
        self._ended[index] = error
        number = f"[{len(self._ended)}/{len(self._jobs)}]"
        _say(f"{number} {run.label}, job {job.id}: {f'FAILED: {error_line(error)}' if error else 'done'}")

    def _why(self, run: Run, job: Job, state: str) -> Exception:
        # The job's pickle is Hydra's JobReturn, whose value is the exception. Its path is from the run's folder, which
        # may come from elsewhere: nothing outside the private folder is unpickled.
        if job.log.resolve().is_relative_to(self._private.resolve()):
            try:
                with job.log.with_name(f"{job.id}_0_result.pkl").open("rb") as file:
                    how, result = pickle.load(file)
            except Exception:  # no such file, or it cannot be unpickled here
                how = result = None
            if how == "success" and isinstance(raised := getattr(result, "_return_value", None), Exception):
                return raised
            if how not in ("success", None):
                return JobLost(str(result).strip().splitlines()[-1])
        # Without a result, the last line of a log is all there is.
        said = last_line(job.log) or last_line(run.log)
        return JobLost(f"job {job.id} ended {f'as {state}' if state else 'and Slurm forgot it'}; last line: {said}")


def _say(line: str) -> None:
    print(line, flush=True)
