"""From a table's name to the finished table: its missing runs, trained, and its cells, printed."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ntl.config.table import load_table_spec
from ntl.launch.missing import TRAIN, Report, run_missing
from ntl.launch.progress import duration
from ntl.results import build_table, load_records, missing_runs
from ntl.results.publish import write_tables


def complete_table(
    name: str,
    scale: str,
    *,
    records: Sequence[Path],
    outputs: Path,
    workers: int | None = None,
    target: str = TRAIN,
    console: Console | None = None,
) -> Report:
    """Train what a table of ``config/table`` lacks, print it, and write it to ``outputs`` as .md, .tex and .csv.

    ``records`` are the folders whose records count; new runs go to ``outputs``, which should be one of them.
    UserError: no such table or scale. The table is printed with what there is when some runs failed.
    """
    console = console or Console()
    spec = load_table_spec(name)
    runs = missing_runs(spec, scale, load_records(records))
    report = run_missing(runs, workers=workers, root=_unless_default(outputs), target=target, console=console)
    table = build_table(spec, load_records(records), scale)
    paths = write_tables([table], outputs)
    console.print()
    if console.is_terminal:
        console.print(table.rich())
    else:
        console.print(table.markdown(), markup=False, highlight=False, soft_wrap=True)
    count = len(report.done)
    trained = f"{count} run{'' if count == 1 else 's'} trained in {duration(report.seconds)}"
    console.print(f"{trained}, {len(report.failed)} failed.", highlight=False)
    console.print(f"Runs: {outputs}/<run id>/. Table: {' '.join(map(str, paths))}", markup=False, soft_wrap=True)
    return report


def _unless_default(outputs: Path) -> Path | None:
    # A run's overrides are part of its record: the default folder is not named, so that records are equal everywhere.
    return None if outputs == Path("outputs") else outputs
