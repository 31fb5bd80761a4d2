"""`scripts/reproduce.py --status`: which runs of tables are done, running, queued, failed or missing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ntl.costs.runs import Costs
from ntl.launch.ledger import hours, in_workers
from ntl.launch.plan import Demand, Run, runs_to_make
from ntl.launch.slurm import ACTIVE, job_states, last_line, marked
from ntl.system.errors import UserError
from ntl.training.folder import is_taken


class State(Enum):
    """In the order of printing. ``failed``: started or submitted, but without a record or a process at work."""

    done = "done"
    running = "running"
    queued = "queued"
    failed = "failed"
    missing = "missing"


@dataclass(frozen=True)
class Status:
    """``detail``: job and steps, or the last line of the log. ``made``: the share of its steps that are done."""

    id: str
    label: str
    state: State
    detail: str = ""
    made: float = 0.0


def statuses(demanded: Sequence[Demand], outputs: Path) -> list[Status]:
    """The status of each run of the tables, once even if several tables need it."""
    todo = {run.id: run for run in runs_to_make(demanded, outputs)}
    states = _job_states(todo.values())
    ids = dict.fromkeys(key for demand in demanded for key in demand.runs)
    return [_status(todo[key], states) if key in todo else Status(key, key, State.done, made=1.0) for key in ids]


def _job_states(runs: Iterable[Run]) -> dict[str, str]:
    if not any(marked(run.folder) for run in runs):
        return {}  # no job was ever submitted: do not ask Slurm
    try:
        return job_states() or {}
    except UserError:
        return {}


def _status(run: Run, states: Mapping[str, str]) -> Status:
    job = marked(run.folder)
    state = states.get(job.id, "") if job else ""
    name = f", job {job.id}" if job and state in ACTIVE else ""
    steps = run.step(0.0)
    made = min(1.0, steps / max(1, run.max_steps))
    if is_taken(run.folder) or state == "RUNNING":
        return Status(run.id, run.label, State.running, f"step {steps}/{run.max_steps}{name}", made)
    if state in ACTIVE:
        return Status(run.id, run.label, State.queued, f"{state.lower()}{name}", made)
    line = last_line(run.log) or (last_line(job.log) if job else "")
    if line or job:
        return Status(run.id, run.label, State.failed, line or "its job left no line", made)
    return Status(run.id, run.label, State.missing, made=made)


def seconds_left(demanded: Sequence[Demand], found: Iterable[Status], costs: Costs) -> dict[str, float]:
    """Device -> seconds left of all runs, estimated by the share of steps that are left."""
    configs = {key: config for demand in demanded for key, config in demand.runs.items()}
    left: dict[str, float] = {}
    for status in found:
        if status.state is not State.done:
            cost = costs.of(configs[status.id])
            left[cost.device] = left.get(cost.device, 0.0) + cost.seconds * (1.0 - status.made)
    return left


def status_text(found: Sequence[Status], left: Mapping[str, float], workers: int) -> str:
    """The number of runs in each state, the hours left, then every running, queued or failed run."""
    counts = Counter(status.state for status in found)
    lines = [", ".join(f"{counts[state]} {state.value}" for state in State) + f" of {len(found)} runs"]
    if left:
        known = "from measured runs or estimates (--dry-run)"
        lines.append(f"Hours left, {known}: {hours(left)}.{in_workers(left, workers)}")
    listed = (State.running, State.queued, State.failed)
    lines += [f"{s.state.value:<8}{s.label}: {s.detail}" for state in listed for s in found if s.state is state]
    return "\n".join(lines)
