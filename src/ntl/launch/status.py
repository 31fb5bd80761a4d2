"""How far the runs of tables are: ``--status``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ntl.launch.costs import Measured, hours_left, hours_text
from ntl.launch.plan import Demand, Run, last_line
from ntl.launch.slurm import NOISE, job_states, marked
from ntl.system.errors import UserError
from ntl.training.checkpoints import is_taken

# In the order of printing. "failed": started or submitted, but without a record or a process at work.
STATES = ("done", "running", "queued", "failed", "missing")


@dataclass(frozen=True)
class Status:
    """``detail``: job and steps, or the last line of the log."""

    id: str
    state: str
    detail: str = ""


def statuses(demanded: Sequence[Demand], todo: Sequence[Run]) -> list[Status]:
    """The status of each run of the tables, of which ``todo`` have no record."""
    queue: Mapping[str, str] = {}
    if any(marked(run.folder) for run in todo):  # else no job was ever submitted: do not ask Slurm
        with suppress(UserError):  # no Slurm on this machine
            queue = job_states() or {}
    missing = {run.id: _status(run, queue) for run in todo}
    ids = dict.fromkeys(key for demand in demanded for key in demand.runs)
    return [missing.get(key, Status(key, "done")) for key in ids]


def _status(run: Run, queue: Mapping[str, str]) -> Status:
    job = marked(run.folder)
    state = queue.get(job.id, "") if job else ""
    name = f", job {job.id}" if job and state else ""
    if is_taken(run.folder) or state == "RUNNING":
        return Status(run.id, "running", f"step {run.step}/{run.steps or '?'}{name}")
    if state:
        return Status(run.id, "queued", f"{state.lower()}{name}")
    line = (last_line(job.log, NOISE) if job else "") or last_line(run.log)
    return Status(run.id, "failed", line or "its job left no line") if line or job else Status(run.id, "missing")


def status_text(found: Sequence[Status], todo: Sequence[Run], measured: Measured) -> str:
    """The number of runs in each state, the core-hours left, then every running, queued or failed run."""
    counts = Counter(status.state for status in found)
    lines = [", ".join(f"{counts[state]} {state}" for state in STATES) + f" of {len(found)} runs"]
    if todo:
        left = hours_text(*hours_left(todo, measured))
        lines.append(f"Core-hours left, as records of such runs measured them: {left}.")
    listed = ("running", "queued", "failed")
    lines += [f"{s.state:<8}{s.id}: {s.detail}" for state in listed for s in found if s.state == state]
    return "\n".join(lines)
