"""From the names of tables to finished tables: their missing runs, trained, and their cells, printed."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ntl.costs.runs import Costs
from ntl.launch.demand import Demand, demands, missing, place, wanted
from ntl.launch.missing import TRAIN, Report, run_missing
from ntl.launch.pool import Ended
from ntl.launch.progress import duration
from ntl.launch.room import tell_room
from ntl.launch.sweep import sweep_missing
from ntl.results import build_table, load_records
from ntl.results.load import RECORD
from ntl.results.publish import write_tables
from ntl.results.render import markdown, terminal
from ntl.system.machine import available_cores
from ntl.training.folder import remove_leftovers


class _Tables:
    """Shows and writes each table once: when its last run has ended well, and at the end what is left."""

    def __init__(self, demanded: Sequence[Demand], records: Sequence[Path], outputs: Path, console: Console) -> None:
        self._records, self._outputs, self._console = records, outputs, console
        self._waiting = {demand.spec.name: (demand, set(demand.lacking.values())) for demand in demanded}

    def ended(self, result: Ended) -> None:
        for _, lacking in self._waiting.values():
            if not result.error:
                lacking.discard(result.run.id)
        self.show_complete()

    def show_complete(self) -> None:
        self._show([demand for demand, lacking in self._waiting.values() if not lacking])

    def show_rest(self) -> None:
        self._show([demand for demand, _ in self._waiting.values()])

    def _show(self, chosen: Sequence[Demand]) -> None:
        if not chosen:
            return
        found = load_records(self._records)
        for demand in chosen:
            del self._waiting[demand.spec.name]
            table = build_table(demand.spec, found, demand.scale)
            paths = write_tables([table], self._outputs)
            self._console.print()
            if self._console.is_terminal:
                self._console.out(terminal.render(table, self._console), highlight=False, end="")
            else:
                self._console.print(markdown.render(table), markup=False, highlight=False, soft_wrap=True)
            self._console.print(f"Written: {' '.join(map(str, paths))}", markup=False, soft_wrap=True)


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
    target: str = TRAIN,
    console: Console | None = None,
) -> Report:
    """Train what tables of ``config/table`` lack, print each, and write it to ``outputs`` as .md, .tex and .csv.

    A run that several tables need is made once. ``records`` are the folders whose records count; new runs go to
    ``outputs``, which should be one of them. ``launcher`` is one of Hydra's, with the settings ``hydra``, in place of
    worker processes of our own. ``overrides`` are settings of train.py for every run: what is made with them is another
    table, in files of another name, and says so. A table is there as soon as its last run has ended, and in the end
    with what there is where some of its runs failed. The last lines are the failures, each with its log.
    UserError: no such table; no table that has this scale; an override of what a row pins; less free disk than the runs
    need.
    """
    console = console or Console()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    found = load_records(records)
    demanded = demands(names, scale, found, say, overrides)
    todo = missing(demanded, outputs)
    configs = {name: config for demand in demanded for name, config in demand.runs.items()}
    tell_room(
        todo,
        configs,
        costs=Costs(found),
        # Any number of a cluster's jobs may run together.
        at_once=len(todo) if launcher else workers or available_cores(),
        outputs=outputs,
        say=say,
    )
    for run_id, config in configs.items():
        if (outputs / run_id / RECORD).is_file():
            remove_leftovers(outputs / run_id, config.trainer.keep_checkpoints_after)
    tables = _Tables(demanded, records, outputs, console)
    tables.show_complete()
    if launcher:
        report = sweep_missing(wanted(demanded), launcher, hydra, root=place(outputs))
    else:
        report = run_missing(
            wanted(demanded),
            workers=workers,
            root=place(outputs),
            target=target,
            console=console,
            expected=Costs(found).measured,
            after=tables.ended,
        )
    tables.show_rest()
    trained = f"{len(report.done)} run{'' if len(report.done) == 1 else 's'} trained in {duration(report.seconds)}"
    say(f"{trained}, {len(report.failed)} failed. Runs: {outputs}/<run id>/.")
    for result in report.failed:
        say(f"{result.run.label} failed: {result.error}")
        say(f"  log: {result.run.log}")
    return report
