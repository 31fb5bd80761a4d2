"""A sweep as one Slurm job array by hydra-submitit-launcher, and what that launcher cannot do.

It would submit a run again that has a record or is in the queue, end at the first job that is killed, and wait for that
one forever where Slurm has no accounting (sacct). Its jobs of several tasks would be as many runs, not one.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from ntl.launch.plan import Run, last_line, plan_runs
from ntl.launch.sweep import train
from ntl.results.sweep import show_sweep
from ntl.system.errors import UserError, needs
from ntl.system.secrets import print_traceback
from ntl.training.checkpoints import is_taken, say

if TYPE_CHECKING:
    from omegaconf import DictConfig

MARK = "slurm.job"  # in a run's folder: the job that was submitted for it, and that job's log
# What srun says after the reason, and where the run's own log has it.
NOISE = (
    r"srun: (Force Terminated|Job step aborted|forcing job termination|launch/slurm|error: .*: Exited with exit code)"
    r"|slurmstepd: error: \*\*\* STEP"
)
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


class JobLost(Exception):
    """A job ended without a record: its run failed, or it was killed or cancelled, or its node is gone."""


def mark(folder: Path, job: Job) -> None:
    """Write into a run's folder which job was submitted for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text(f"{job.id}\n{job.log}\n", encoding="utf-8")


def marked(folder: Path) -> Job | None:
    """The job that was last submitted for a run; None without one."""
    with suppress(OSError, ValueError):
        identifier, log = (folder / MARK).read_text(encoding="utf-8").splitlines()
        return Job(identifier, Path(log))
    return None


def job_states() -> dict[str, str] | None:
    """Job id -> state of this user's jobs in the queue, waiting or running; None if squeue does not answer.

    UserError: squeue is not installed.
    """
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i|%T"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except FileNotFoundError as error:
        raise UserError("no squeue here: a Slurm launcher works on a machine that can submit jobs.") from error
    except subprocess.SubprocessError:
        return None
    return dict(line.strip().split("|") for line in answer.stdout.splitlines() if "|" in line)


def launch(
    params: Mapping[str, Any], context: Mapping[str, Any], job_overrides: Sequence[Sequence[str]], first: int
) -> list[JobReturn]:
    """Make every run that has no record, in a new job or in the one that is in the queue for it already.

    Args:
        params: the settings of ``config/hydra/launcher/slurm.yaml``.
        context: the arguments of a launcher's ``setup``.
        job_overrides: a list of overrides for each run.
        first: the number of the sweep's first job.

    Raises:
        UserError: submitit or Slurm is not installed, or Slurm refuses the jobs.
        KeyboardInterrupt: the jobs continue; how to follow or cancel them is printed first.
    """
    planned = [plan_runs([overrides]) for overrides in job_overrides]
    todo = {index: runs[0] for index, (runs, _) in enumerate(planned) if runs}
    queued = job_states() or {}
    jobs = {index: job for index, run in todo.items() if (job := marked(run.folder)) and job.id in queued}
    new = [index for index in todo if index not in jobs]
    say(f"{len(new)} jobs to submit, {len(jobs)} in the queue already, {len(planned) - len(todo)} runs have a record.")
    if new:
        submitted = _submit(dict(params), context, [list(job_overrides[index]) for index in new], first)
        for index, job in zip(new, submitted, strict=True):
            mark(todo[index].folder, job)
            jobs[index] = job
    errors = _wait(todo, jobs)
    if context.get("task_function") is not train:  # reproduce.py prints tables of its own
        show_sweep([run.folder for parts in planned for runs in parts for run in runs])
    results = []
    for index, overrides in enumerate(job_overrides):
        status = JobStatus.FAILED if index in errors else JobStatus.COMPLETED
        results.append(JobReturn(overrides=list(overrides), status=status))
        results[-1].return_value = errors.get(index)
    return results


def _submit(
    params: dict[str, Any], context: Mapping[str, Any], job_overrides: Sequence[list[str]], first: int
) -> list[Job]:
    with needs("slurm"):
        import submitit
        from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
        from submitit.core.utils import FailedJobError
    plain: Any = OmegaConf.to_container(OmegaConf.create(params), resolve=True)
    inner = SlurmLauncher(**plain)
    inner.setup(**{**context, "task_function": train_in_task})
    folder, timeouts = plain.pop("submitit_folder"), plain.pop("max_num_timeout")
    Path(context["config"].hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
    _make_private(Path(folder.partition("%")[0]))
    named = {key if key in SHARED else f"slurm_{key}": value for key, value in plain.items()}
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=timeouts)
        # A rank that fails ends the others, which would wait for it.
        executor.update_parameters(**named, slurm_srun_args=["--kill-on-bad-exit=1"])
        state = Singleton.get_state()
        rows = [
            (overrides, "hydra.sweep.dir", number, f"job_id_for_{number}", state)
            for number, overrides in enumerate(job_overrides, start=first)
        ]
        jobs = executor.map_array(inner, *zip(*rows, strict=True))
    except (FailedJobError, RuntimeError) as error:
        raise UserError(f"Slurm takes no job: {' '.join(str(error).split())[:300]}") from error
    return [Job(job.job_id, Path(job.paths.stderr)) for job in jobs]


def _make_private(folder: Path) -> None:
    # Jobs are pickles: whoever can write here can run code as this user.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise UserError(f"submitit_folder {folder}: {error.strerror}; it must be a folder of yours alone.") from error


def _wait(runs: Mapping[int, Run], jobs: Mapping[int, Job]) -> dict[int, JobLost]:
    """Wait until every job has left the queue; the errors of those without a record."""
    waiting, absent, errors = dict(jobs), Counter[int](), dict[int, JobLost]()
    ids = " ".join(sorted({job.id.split("_")[0] for job in jobs.values()}))
    try:
        if jobs:
            say(f"Follow: squeue --me, or scripts/reproduce.py --status. Cancel: scancel {ids}")
        while waiting:
            time.sleep(POLL_SECONDS)
            if (queued := job_states()) is None:
                continue
            for index, job in list(waiting.items()):
                run = runs[index]
                absent[index] = 0 if job.id in queued else absent[index] + 1
                # Files of another machine may appear later than the job's end, and another sweep may be at the run.
                if not absent[index] or (not run.is_done and (absent[index] < LOST_AFTER or is_taken(run.folder))):
                    continue
                del waiting[index]
                if not run.is_done:
                    line = last_line(job.log, NOISE) or last_line(run.log)
                    errors[index] = JobLost(f"job {job.id} ended without a record; last line: {line}")
                number = f"[{len(jobs) - len(waiting)}/{len(jobs)}]"
                say(f"{number} {run.id}, job {job.id}: {f'FAILED: {errors[index]}' if index in errors else 'done'}")
    except KeyboardInterrupt:
        say(f"The jobs go on; the same command follows them again. Cancel: scancel {ids}")
        raise
    return errors


def train_in_task(raw: "DictConfig") -> None:
    """Train a run in a task of a job, as one rank of several if the job has several tasks; SystemExit if it fails."""
    from submitit.helpers import TorchDistributedEnvironment

    ranks = TorchDistributedEnvironment()
    if ranks.world_size > 1:
        # Every rank sees all devices of its node and takes that of its LOCAL_RANK.
        ranks.export(set_cuda_visible_devices=False, overwrite=True)
    try:
        train(raw)
    except KeyboardInterrupt:
        # The time limit: the first rank puts the job back into the queue, which an error of another would prevent.
        sys.exit(0 if ranks.rank else 1)
    except Exception:
        print_traceback()
        sys.exit(1)
