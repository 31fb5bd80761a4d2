"""How far tables are, and what they cost, as text: ``--status``, ``--dry-run`` and ``results/costs.md``."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from textwrap import fill
from typing import Any

from ntl.config.root import Config
from ntl.costs.runs import ASSUMPTIONS, CPU, PRESET_SCALE, Costs, Sum
from ntl.launch.plan import Demand, Run, demands, runs_to_make
from ntl.launch.progress import duration
from ntl.launch.slurm import ACTIVE, job_states, last_line, marked
from ntl.results import RunRecord
from ntl.results.match import computing
from ntl.results.spec import load_table_spec, table_names
from ntl.system.errors import UserError
from ntl.system.files import write_text
from ntl.training.folder import is_taken

WIDTH = 120
PRESETS = (
    f"An upper preset (scale={PRESET_SCALE}) takes as many steps as the authors' command; their "
    "runs were stopped by hand at steps that are not recorded. Epochs are known where a published record has the same "
    "training data."
)
HEAD = """# What the tables cost

Written by `make costs` from the records in `results/runs`; never edited by hand. A run is measured where there are
records of its data set, model, scale, number of steps and of heads: the median of their wall times, one thread a run.
Any other is estimated, as the last paragraph says. `python scripts/reproduce.py table=2 scale=paper --dry-run` prints
what a table still lacks.
"""
Json = dict[str, Any]


def figure(value: float) -> str:
    """Two significant digits, without an exponent: 0.35, 3.0, 1,400."""
    if value <= 0:
        return "0"
    places = 1 - math.floor(math.log10(value))
    return f"{round(value, places):,.{max(0, places)}f}"


def hours(seconds: Mapping[str, float | None]) -> str:
    """``0.35 (CPU) + 9.5 (H100)``; None: unknown, as for epochs of data that is not prepared yet."""
    known = {device: "unknown" if value is None else figure(value / 3600) for device, value in seconds.items()}
    return " + ".join(f"{value} ({device})" for device, value in known.items()) or "0"


def _known(seconds: Mapping[str, float]) -> dict[str, float | None]:
    return {device: None if math.isnan(value) else value for device, value in seconds.items()}


def in_workers(seconds: Mapping[str, float | None], workers: int) -> str:
    """How long that takes here, as a sentence after a space; empty where a CPU has nothing to do, or unknown."""
    if (alone := seconds.get(CPU)) is None:
        return ""
    return f" In {workers} worker process{'' if workers == 1 else 'es'}: about {duration(alone / workers)}."


def gigabytes(size: float) -> str:
    return f"{figure(size / 1e9)} GB"


# ---- --status


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
    states: Mapping[str, str] = {}
    if any(marked(run.folder) for run in todo.values()):  # else no job was ever submitted: do not ask Slurm
        with suppress(UserError):  # no Slurm on this machine
            states = job_states() or {}
    ids = dict.fromkeys(key for demand in demanded for key in demand.runs)
    return [_status(todo[key], states) if key in todo else Status(key, key, State.done, made=1.0) for key in ids]


def _status(run: Run, states: Mapping[str, str]) -> Status:
    job = marked(run.folder)
    state = states.get(job.id, "") if job else ""
    name = f", job {job.id}" if job and state in ACTIVE else ""
    steps = run.step(0.0)
    made = min(1.0, steps / run.max_steps) if run.max_steps else 0.0
    if is_taken(run.folder) or state == "RUNNING":
        return Status(run.id, run.label, State.running, f"step {steps}/{run.max_steps or '?'}{name}", made)
    if state in ACTIVE:
        return Status(run.id, run.label, State.queued, f"{state.lower()}{name}", made)
    line = last_line(run.log) or (last_line(job.log) if job else "")
    if line or job:
        return Status(run.id, run.label, State.failed, line or "its job left no line", made)
    return Status(run.id, run.label, State.missing, made=made)


def seconds_left(demanded: Sequence[Demand], found: Iterable[Status], costs: Costs) -> dict[str, float | None]:
    """Device -> seconds left of all runs, estimated by the share of steps that are left; None if unknown."""
    configs = {key: config for demand in demanded for key, config in demand.runs.items()}
    left: dict[str, float] = {}
    for status in found:
        if status.state is not State.done:
            cost = costs.of(configs[status.id])
            left[cost.device] = left.get(cost.device, 0.0) + cost.seconds * (1.0 - status.made)
    return _known(left)


def status_text(found: Sequence[Status], left: Mapping[str, float | None], workers: int) -> str:
    """The number of runs in each state, the hours left, then every running, queued or failed run."""
    counts = Counter(status.state for status in found)
    lines = [", ".join(f"{counts[state]} {state.value}" for state in State) + f" of {len(found)} runs"]
    if left:
        known = "from measured runs or estimates (--dry-run)"
        lines.append(f"Hours left, {known}: {hours(left)}.{in_workers(left, workers)}")
    listed = (State.running, State.queued, State.failed)
    lines += [f"{s.state.value:<8}{s.label}: {s.detail}" for state in listed for s in found if s.state is state]
    return "\n".join(lines)


# ---- --dry-run


def dry_run(demanded: Sequence[Demand], todo: Iterable[str], costs: Costs) -> Json:
    """Runs, seconds by device and bytes of disk of every table, and of all tables with each run once.

    ``todo`` are the ids of the runs that would be made.
    """
    ids = set(todo)

    def row(name: str, scale: str, runs: Mapping[str, Config]) -> Json:
        lacking = [config for key, config in runs.items() if key in ids]
        total = costs.total(lacking)
        counts = {"runs": len(runs), "done": len(runs) - len(lacking), "missing": len(lacking)}
        price = {"seconds": _known(total.seconds), "basis": total.basis, "disk_bytes": total.disk}
        return {"table": name, "scale": scale, **counts, **price}

    rows = [row(demand.spec.name, demand.scale, demand.runs) for demand in demanded]
    every = {key: config for demand in demanded for key, config in demand.runs.items()}
    result = {"tables": rows, "total": row("all", demanded[0].scale, every), "assumptions": ASSUMPTIONS}
    added = list(computing(demanded[0].spec.added))
    return result | ({"added": added} if added else {})


def dry_run_text(result: Json, workers: int) -> str:
    """For a terminal: one line a table, the sum, and how the hours were found."""
    head = ["table", "scale", "runs", "done", "missing", "hours of these", "disk", "basis"]
    grid = [head]
    for row in [*result["tables"], *([result["total"]] if len(result["tables"]) > 1 else [])]:
        counts = [str(row[key]) for key in head[:5]]
        grid.append([*counts, hours(row["seconds"]), gigabytes(row["disk_bytes"]), row["basis"]])
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in grid]
    if line := in_workers(result["total"]["seconds"], workers):
        lines.append(line.strip())
    if "added" in result:
        lines.append(f"Every run with {', '.join(result['added'])}; what is measured was measured without.")
    return "\n".join([*lines, fill(ASSUMPTIONS, WIDTH)])


# ---- results/costs.md


def ledger(records: Sequence[RunRecord]) -> str:
    """A Markdown table of what every table costs at every scale. The same records give the same text."""
    costs = Costs(records)
    names = table_names()
    lines = [
        "| table | scale | runs | epochs | hours | disk | basis |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for scale in dict.fromkeys(scale for name in names for scale in load_table_spec(name).scales):
        every: dict[str, Config] = {}
        for demand in demands(names, scale, records, skip=lambda line: None):
            every.update(demand.runs)
            lines.append(_line(demand.spec.name, scale, costs.total(demand.runs.values())))
        lines.append(_line("**all, each run once**", scale, costs.total(every.values())))
    return "\n".join([*lines, "", fill(f"{ASSUMPTIONS} {PRESETS}", WIDTH)])


def _line(name: str, scale: str, total: Sum) -> str:
    ends = list(dict.fromkeys(f"{epochs:,.0f}" if epochs >= 10 else figure(epochs) for epochs in total.epochs))
    epochs = " to ".join(ends[:: max(1, len(ends) - 1)]) or "-"
    price = hours(_known(total.seconds))
    basis = "upper preset" if scale == PRESET_SCALE and not total.measured else total.basis
    return f"| {name} | {scale} | {total.runs} | {epochs} | {price} | {gigabytes(total.disk)} | {basis} |"


def write_ledger(path: Path, records: Sequence[RunRecord]) -> None:
    """Write the page of the ledger, ``results/costs.md``."""
    write_text(path, f"{HEAD}\n{ledger(records)}\n")
