"""What Slurm's queue says of jobs, and which job is at which run. Works without accounting (sacct)."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from ntl.launch.plan import last_lines
from ntl.system.errors import UserError

# In a run's folder: the job that was submitted for it, and where that job's own output goes.
MARK = "slurm.job"
# A job in any other state has ended, well or not (squeue's manual, JOB STATE CODES).
ACTIVE = {
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "CONFIGURING",
    "COMPLETING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESV_DEL_HOLD",
    "RESIZING",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "PREEMPTED",
}
# What srun says after the line that tells why.
NOISE = ("srun: Force Terminated", "srun: Job step aborted", "srun: forcing job termination")


@dataclass(frozen=True)
class Job:
    """``id`` as squeue shows it, 12 or 12_3 of an array; ``log`` is its standard error."""

    id: str
    log: Path


def mark(folder: Path, job: Job) -> None:
    """Note in a run's folder which job is to make it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text(f"{job.id}\n{job.log}\n", encoding="utf-8")


def marked(folder: Path) -> Job | None:
    """The job that was last submitted for a run."""
    try:
        identifier, log = (folder / MARK).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return Job(identifier, Path(log))


def job_states() -> dict[str, str] | None:
    """Job id -> state, of all jobs of this user that Slurm still knows; None where it does not answer now.

    UserError: there is no squeue here.
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
    """The last line of a log that says something; empty where there is none."""
    try:
        lines = [line.decode(errors="replace") for line in last_lines(log)]
    except OSError:
        return ""
    telling = (line for line in reversed(lines) if line.strip() and not line.startswith(NOISE))
    return " ".join(next(telling, "").split())[:300]
