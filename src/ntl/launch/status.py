"""How far the runs of tables are: ``--status``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ntl.launch.costs import core_hours, hours_text
from ntl.launch.plan import Demand, Kind, Run, runs_to_make
from ntl.launch.slurm import ACTIVE, job_states, last_line, marked
from ntl.system.errors import UserError
from ntl.training.folder import is_taken

# In the order of printing. "failed": started or submitted, but without a record or a process at work.
STATES = ("done", "running", "queued", "failed", "missing")


@dataclass(frozen=True)
class Status:
    """``detail``: job and steps, or the last line of the log. ``made``: the share of its steps that are done."""

    id: str
    label: str
    state: str
    detail: str = ""
    made: float = 0.0


def statuses(demanded: Sequence[Demand], outputs: Path) -> list[Status]:
    """The status of each run of the tables, once even if several tables need it."""
    todo = {run.id: run for run in runs_to_make(demanded, outputs)}
    states: Mapping[str, str] = {}
    if any(marked(run.folder) for run in todo.values()):  # else no job was ever submitted: do not ask Slurm
        with suppress(UserError):  # no Slurm on this machine
            states = job_states() or {}
    ids = dict.fromkeys(key for demand in demanded for key in demand.runs)
    return [_status(todo[key], states) if key in todo else Status(key, key, "done", made=1.0) for key in ids]


def _status(run: Run, states: Mapping[str, str]) -> Status:
    job = marked(run.folder)
    slurm = states.get(job.id, "") if job else ""
    name = f", job {job.id}" if job and slurm in ACTIVE else ""
    steps = run.step(0.0)
    line = last_line(run.log) or (last_line(job.log) if job else "")
    if is_taken(run.folder) or slurm == "RUNNING":
        state, detail = "running", f"step {steps}/{run.max_steps or '?'}{name}"
    elif slurm in ACTIVE:
        state, detail = "queued", f"{slurm.lower()}{name}"
    elif line or job:
        state, detail = "failed", line or "its job left no line"
    else:
        state, detail = "missing", ""
    return Status(run.id, run.label, state, detail, min(1.0, steps / run.max_steps) if run.max_steps else 0.0)


def status_text(found: Sequence[Status], demanded: Sequence[Demand], measured: Mapping[Kind, float]) -> str:
    """The number of runs in each state, the core-hours left, then every running, queued or failed run."""
    counts = Counter(status.state for status in found)
    lines = [", ".join(f"{counts[state]} {state}" for state in STATES) + f" of {len(found)} runs"]
    configs = {key: config for demand in demanded for key, config in demand.runs.items()}
    if left := [(configs[status.id], 1.0 - status.made) for status in found if status.state != "done"]:
        lines.append(
            f"Core-hours left, as records of such runs measured them: {hours_text(*core_hours(left, measured))}."
        )
    listed = ("running", "queued", "failed")
    lines += [f"{s.state:<8}{s.label}: {s.detail}" for state in listed for s in found if s.state == state]
    return "\n".join(lines)
