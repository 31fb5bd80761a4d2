"""From names of tables to complete tables: train their missing runs, print and write them."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ntl.launch.costs import disk_needed, gigabytes
from ntl.launch.plan import demands, runs_to_make
from ntl.launch.sweep import sweep_all
from ntl.launch.workers import TRAIN, Report, duration, run_all
from ntl.results import build_table, load_records
from ntl.results.render import markdown
from ntl.results.write import write_tables
from ntl.system.errors import UserError
from ntl.system.files import existing
from ntl.system.machine import available_cores


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
) -> Report:
    """Train the missing runs of tables, print each table, and write it to ``outputs`` as .md, .tex and .csv.

    A run that several tables need is made once. Runs that fail are left out of the tables; the last lines name each
    with its log.

    Args:
        names: of ``config/table``, or paths of files. Those without the scale are skipped.
        records: folders whose records are used; ``outputs``, where new runs go, should be one of them.
        launcher: a launcher of Hydra, with the settings ``hydra``, instead of worker processes (see ``run_all``).
        overrides: settings of train.py for every run. They make another table, with its own title and file names.
        seeds: of the tables' own, those to train and to show; all by default.

    UserError: no such table; no table at this scale or with these seeds; an override of a setting that rows fix; not
    enough free disk.
    """
    console = console or Console()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    demanded = demands(names, scale, load_records(records), overrides, seeds, say)
    if todo := runs_to_make(demanded, outputs):
        needed = gigabytes(size := disk_needed(todo, runs_at_once(launcher, workers)))
        free = shutil.disk_usage(existing(outputs)).free
        say(f"Disk: {needed} for the checkpoints of {len(todo)} runs, {gigabytes(free)} free in {outputs}.")
        if size > free:
            raise UserError(f"outputs={outputs}: too little free disk; free some, or choose another by outputs=.")
    if launcher:
        report = sweep_all(todo, launcher, hydra)
    else:
        report = run_all(todo, workers=workers, target=target, console=console)
    found = load_records(records)
    for demand in demanded:
        table = build_table(demand.spec, found, scale)
        paths = write_tables([table], outputs)
        console.print()
        markdown.show(table, console)
        say(f"Written: {' '.join(map(str, paths))}")
    trained = f"{len(report.done)} run{'' if len(report.done) == 1 else 's'} trained in {duration(report.seconds)}"
    say(f"{trained}, {len(report.failed)} failed. Runs: {outputs}/<run id>/.")
    for result in report.failed:
        say(f"{result.run.id} failed: {result.error}")
        say(f"  log: {result.run.log}")
    return report


def runs_at_once(launcher: str, workers: int | None) -> int | None:
    """How many runs train at the same time; None: all, as on a cluster any number of jobs may."""
    return None if launcher else workers or available_cores()
