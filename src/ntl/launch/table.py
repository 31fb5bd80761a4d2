"""From names of tables to complete tables: train their missing runs, print and write them."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ntl.launch.costs import disk_needed, gigabytes
from ntl.launch.plan import demands, runs_to_make
from ntl.launch.workers import TRAIN, run_all, sweep_all
from ntl.results import build_table, load_records
from ntl.results.render import show, write_tables
from ntl.system.errors import UserError, one_line_errors


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
    target: str = TRAIN,
    console: Console | None = None,
) -> int:
    """Train the missing runs of tables, print each table, and write it to ``outputs`` as .md, .tex and .csv.

    A run that several tables need is made once. Runs that fail are left out of the tables; the last lines name each
    with its log.

    Args:
        names: of ``config/table``, or paths of files. Those without the scale are skipped.
        records: folders whose records are used; ``outputs``, where new runs go, should be one of them.
        launcher: a launcher of Hydra, with the settings ``hydra``, instead of worker processes (see ``run_all``).
        overrides: settings of train.py for every run. They make another table, with its own title and file names.
        seeds: of the tables' own, those to train and to show; all by default.

    Returns:
        The exit code: 0, or 1 where a run failed.

    Raises:
        UserError: no such table; no table at this scale or with these seeds; an override of a setting that rows fix;
            not enough free disk.
    """
    console = console or Console()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)  # no line breaks in a log

    started, errors = time.monotonic(), list[str]()
    demanded = demands(names, scale, load_records(records), overrides, seeds, say)
    if todo := runs_to_make(demanded, outputs):
        with one_line_errors("write to", outputs):
            outputs.mkdir(parents=True, exist_ok=True)
        needed, free = disk_needed(todo), shutil.disk_usage(outputs).free
        disk = f"{gigabytes(needed)} for the checkpoints of {len(todo)} runs, {gigabytes(free)} free in {outputs}."
        say(f"Disk: {disk}")
        if needed > free:
            raise UserError(f"outputs={outputs}: too little free disk; free some, or choose another by outputs=.")
        if launcher:
            errors = sweep_all(todo, launcher, hydra, say)
        else:
            errors = run_all(todo, workers=workers, target=target, say=say)
    found = load_records(records)
    for demand in demanded:
        table = build_table(demand.spec, found, scale)
        paths = write_tables([table], outputs)
        console.print()
        show(table, console)
        say(f"Written: {' '.join(map(str, paths))}")
    # Tables are computed from records: a run without one has failed, whatever it reported.
    failed = [(run, error) for run, error in zip(todo, errors, strict=True) if not run.is_done]
    done = len(todo) - len(failed)
    trained = f"{done} run{'' if done == 1 else 's'} trained in {time.monotonic() - started:.0f} s"
    say(f"{trained}, {len(failed)} failed. Runs: {outputs}/<run id>/.")
    for run, error in failed:
        say(f"{run.id} failed: {error or 'it ended without a record'}")
        say(f"  log: {run.log}")
    return 1 if failed else 0
