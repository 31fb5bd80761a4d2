"""Tables made complete: their missing runs are trained. Or printed: how many they are, how far, and what they take."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from rich.console import Console

from ntl.config.identity import plain
from ntl.launch.plan import Demand, Run, as_asked, demands, to_make
from ntl.launch.workers import run_all, sweep_all
from ntl.results import RunRecord, build_table, load_records
from ntl.results.match import computing
from ntl.results.render import show, write_tables
from ntl.runs.folder import is_taken
from ntl.system.errors import one_line_errors

# In the order of printing. "failed": started, but without a record or a process at work.
STATES = ("done", "running", "failed", "missing")


def complete_tables(
    names: Sequence[str],
    scale: str,
    *,
    records: Sequence[Path],
    outputs: Path,
    workers: int | None = None,
    launcher: str = "",
    hydra: Sequence[str] = (),
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> int:
    """Train the missing runs of tables, print each table, and write it to ``outputs`` as .md and .csv.

    A run that several tables need is made once. The last lines name each run that failed, with its log.
    ``records``: folders whose records are used, among them ``outputs``, where new runs go. ``launcher``: one of Hydra,
    with the settings ``hydra``, instead of worker processes. ``overrides``: settings of train.py for every run, which
    make another table, with its own title and file names. ``seeds``: of the tables' own, all by default.

    Returns the exit code, 1 where a run failed. UserError: no such table, or none at this scale or with these seeds; an
    override of a setting that rows fix.
    """
    started, errors = time.monotonic(), list[str]()
    demanded = demands(names, scale, load_records(records), outputs, overrides, seeds)
    if todo := to_make(run for demand in demanded for run in demand.missing):
        with one_line_errors("write to", outputs):
            outputs.mkdir(parents=True, exist_ok=True)
        errors = sweep_all(todo, launcher, hydra) if launcher else run_all(todo, workers=workers)
    loaded = load_records(records)
    for demand in demanded:
        table = build_table(demand.spec, as_asked(loaded, demand.runs), scale)
        paths = write_tables([table], outputs)
        print()
        show(table, Console())
        print(f"Written: {' '.join(map(str, paths))}")
    # Tables are computed from records: a run without one has failed, whatever it reported.
    failed = [(run, error) for run, error in zip(todo, errors, strict=True) if not run.is_done]
    done = len(todo) - len(failed)
    trained = f"{done} run{'' if done == 1 else 's'} trained in {time.monotonic() - started:.0f} s"
    print(f"{trained}, {len(failed)} failed. Runs: {outputs}/<run id>/.")
    for run, error in failed:
        print(f"{run.id} failed: {error or 'it ended without a record'}\n  log: {run.log}")
    return 1 if failed else 0


# ---- what is left


def dry_run(
    demanded: Sequence[Demand], records: Sequence[RunRecord], gpu: str = "", rates: Mapping[str, float] | None = None
) -> str:
    """How many runs are in each state; a line for each table; each running or failed run, and how far it is.

    ``records``: those that core-hours are taken from. ``gpu``: what the runs that are left would take of it. ``rates``:
    the optimizer steps a second of those that were rehearsed, by id.
    """
    todo = to_make(run for demand in demanded for run in demand.missing)
    progress = {run.id: _state(run) for run in todo}
    tables = {demand.spec.name: set(demand.runs) for demand in demanded}
    tables["all"] = set().union(*tables.values())
    rows = []
    for name, ids in tables.items():
        left = [run for run in todo if run.id in ids]
        counts = Counter(progress[run.id][0] for run in left) + Counter(done=len(ids) - len(left))
        states = [counts[state] for state in STATES]
        rows.append([name, demanded[0].scale, len(ids), *states, core_hours(left, records)])
    _, _, total, *states, _ = rows[-1]
    first = ", ".join(f"{count} {state}" for count, state in zip(states, STATES, strict=True))
    columns, shown = ["table", "scale", "runs", *STATES, "core-hours"], rows if len(rows) > 2 else rows[:1]
    lines = [f"{first} of {total}", pd.DataFrame(shown, columns=columns).to_string(index=False)]
    if added := computing(demanded[0].spec.added):
        lines.append(f"Every run with {', '.join(added)}; core-hours are of runs without.")
    for wanted in ("running", "failed"):
        lines += [f"{wanted:<8}{name}: {detail}" for name, (state, detail) in progress.items() if state == wanted]
    if gpu:
        from ntl.launch.capacity import capacity  # here, because it imports torch

        measured = [] if rates is None else [rates.get(run.id) for run in todo]
        lines.append(capacity([run.config for run in todo], gpu, measured))
    return "\n".join(filter(None, lines))


def _state(run: Run) -> tuple[str, str]:
    """Of a run without a record: its state, and its step or the last line of its log."""
    if is_taken(run.folder):
        return "running", f"step {run.step}/{run.steps or '?'}"
    return ("failed", run.last_line or "its log is empty") if run.log.is_file() else ("missing", "")


def core_hours(runs: Sequence[Run], records: Sequence[RunRecord]) -> str:
    """What such runs took in the median, as ``0.35 + runs not measured: 4``; records of GPUs do not count.

    Without the sum where no such run was measured.
    """
    measured: dict[Any, list[float]] = {}
    for record in records:
        if record.core_seconds:
            measured.setdefault(_kind(record.config), []).append(record.core_seconds / 3600)
    samples = [measured.get(_kind(plain(run.config))) for run in runs]
    if samples and not any(samples):
        return f"not measured: {len(samples)}"
    hours = f"{sum(median(sample) for sample in samples if sample):,.2f}"
    return f"{hours} + runs not measured: {samples.count(None)}" if None in samples else hours


def _kind(config: Mapping[str, Any]) -> Any:
    """What runs that are expected to take equally long have in common, of a config as in a record."""
    names = [config.get(group, {}).get("name") for group in ("dataset", "model", "scale")]
    trainer, heads = config.get("trainer", {}), config.get("objective", {}).get("heads", 1)
    return (*names, trainer.get("epochs", 0), trainer.get("epochs") or trainer.get("max_steps"), heads)
