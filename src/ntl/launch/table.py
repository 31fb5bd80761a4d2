"""From names of tables to complete tables: train their missing runs, print and write them."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ntl.config.root import Config
from ntl.launch.costs import core_seconds, disk_needed, gigabytes
from ntl.launch.plan import Demand, Ended, Run, demands, missing_overrides, output_root, runs_to_make
from ntl.launch.progress import duration
from ntl.launch.workers import TRAIN, Report, run_missing, sweep_missing
from ntl.results import build_table, load_records
from ntl.results.load import RECORD
from ntl.results.render import markdown
from ntl.results.write import write_tables
from ntl.system.errors import UserError
from ntl.system.files import existing
from ntl.system.locks import tell_without_locks
from ntl.system.machine import available_cores
from ntl.training.folder import remove_leftovers

Say = Callable[[str], None]


class _Tables:
    """Prints and writes each table once: when its last run has succeeded, else at the end."""

    def __init__(self, demanded: Sequence[Demand], records: Sequence[Path], outputs: Path, console: Console) -> None:
        self._records, self._outputs, self._console = records, outputs, console
        self._waiting = {demand.spec.name: (demand, set(demand.missing.values())) for demand in demanded}

    def ended(self, result: Ended) -> None:
        for _, missing in self._waiting.values():
            if not result.error:
                missing.discard(result.run.id)
        self.show(complete=True)

    def show(self, *, complete: bool) -> None:
        """Show those that wait, or only those of them whose runs have all ended well."""
        chosen = [demand for demand, missing in self._waiting.values() if not (complete and missing)]
        found = load_records(self._records) if chosen else []
        for demand in chosen:
            del self._waiting[demand.spec.name]
            table = build_table(demand.spec, found, demand.scale)
            paths = write_tables([table], self._outputs)
            self._console.print()
            markdown.show(table, self._console)
            self._console.print(f"Written: {' '.join(map(str, paths))}", markup=False, soft_wrap=True)


def complete_tables(
    names: Sequence[str],
    scale: str,
    *,
    records: Sequence[Path],
    outputs: Path,
    measured: Sequence[Path] = (),
    workers: int | None = None,
    launcher: str = "",
    hydra: Sequence[str] = (),
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    target: str = TRAIN,
    console: Console | None = None,
) -> Report:
    """Train the missing runs of tables, print each table, and write it to ``outputs`` as .md, .tex and .csv.

    A run that several tables need is made once. A table is printed as soon as its last run has ended; if runs of it
    failed, at the end and without them. The last lines are the failures, each with its log.

    Args:
        names: of ``config/table``, or paths of files.
        records: folders whose records are used; ``outputs``, where new runs go, should be one of them.
        measured: further folders, whose records only tell how long runs take.
        launcher: a launcher of Hydra, with the settings ``hydra``, instead of worker processes.
        overrides: settings of train.py for every run. They make another table, with its own title and file names.
        seeds: of the tables' own, those to train and to show; all by default.

    UserError: no such table; no table at this scale or with these seeds; an override of a setting that rows fix; not
    enough free disk.
    """
    console = console or Console()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    found = load_records(records)
    demanded = demands(names, scale, found, say, overrides, seeds)
    todo = runs_to_make(demanded, outputs)
    configs = {name: config for demand in demanded for name, config in demand.runs.items()}
    check_disk(todo, configs, at_once=runs_at_once(launcher, workers), outputs=outputs, say=say)
    for run_id, config in configs.items():
        if (outputs / run_id / RECORD).is_file():
            remove_leftovers(outputs / run_id, config.trainer.keep_checkpoints_after)
    tables = _Tables(demanded, records, outputs, console)
    tables.show(complete=True)
    missing, root = missing_overrides(demanded), output_root(outputs)
    if launcher:
        report = sweep_missing(missing, launcher, hydra, root=root)
    else:
        known = core_seconds(found if set(measured) <= set(records) else load_records([*measured, *records]))
        show = tables.ended
        report = run_missing(
            missing, workers=workers, root=root, target=target, console=console, expected=known, after=show
        )
    tables.show(complete=False)
    trained = f"{len(report.done)} run{'' if len(report.done) == 1 else 's'} trained in {duration(report.seconds)}"
    say(f"{trained}, {len(report.failed)} failed. Runs: {outputs}/<run id>/.")
    for result in report.failed:
        say(f"{result.run.label} failed: {result.error}")
        say(f"  log: {result.run.log}")
    return report


def runs_at_once(launcher: str, workers: int | None) -> int | None:
    """How many runs train at the same time; None: all, as on a cluster any number of jobs may."""
    return None if launcher else workers or available_cores()


def check_disk(
    todo: Sequence[Run], configs: Mapping[str, Config], *, at_once: int | None, outputs: Path, say: Say
) -> None:
    """Print the disk space that the checkpoints of the runs need and how much is free, and whether locks are missing.

    ``at_once`` as in ``disk_needed``. UserError if not enough is free.
    """
    if not todo:
        return
    needed = disk_needed(todo, configs, at_once)
    free = shutil.disk_usage(existing(outputs)).free
    runs = f"{len(todo)} run{'' if len(todo) == 1 else 's'}"
    if needed > free:
        raise UserError(
            f"outputs={outputs}: the checkpoints of {runs} need {gigabytes(needed)} of disk, and {gigabytes(free)} are "
            "free there; free some, or choose another folder by outputs=."
        )
    tell_without_locks(outputs, "outputs", say)
    say(f"Disk: {gigabytes(needed)} for the checkpoints of {runs}, {gigabytes(free)} free in {outputs}.")
