"""A table computed from run records: per cell mean, spread and interval over seeds, beside the paper's number."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ntl.config.table import ColumnSpec, RowSpec, TableSpec, load_table_spec
from ntl.results.compare import Difference, Grid, beats_constants, best_rows, constant_values, corrected, differences
from ntl.results.finding import Primary, find_primary, primary_place
from ntl.results.gains import control_note, example_notes
from ntl.results.heading import heading, stands_in
from ntl.results.match import RowPlan, computing, plan_table, row_records
from ntl.results.notes import notes, warnings
from ntl.results.record import RunRecord
from ntl.results.statistics import Summary, summarize

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Cell:
    """``summary`` is None where no record has the metric. ``seeds`` are those of the records that have it."""

    column: ColumnSpec
    summary: Summary | None
    seeds: tuple[int, ...]
    paper: tuple[float, ...]
    best: bool = False


@dataclass(frozen=True)
class TableRow:
    """``missing`` are the seeds without a record; ``command`` runs them, empty where there is none to run.

    ``learnt`` is False where the mean is no better than that of the best constant answer, at the table's endpoint.
    ``stand_in``: at this scale the model takes the place of the paper's.
    """

    plan: RowPlan
    records: dict[int, RunRecord]
    cells: tuple[Cell, ...]
    missing: tuple[int, ...]
    command: str
    learnt: bool | None = None
    stand_in: bool = False

    @property
    def spec(self) -> RowSpec:
        return self.plan.row


@dataclass(frozen=True)
class Block:
    """One data set's part of a table.

    ``endpoint`` is the column that says what was learnt: that of the primary comparison, or a block's first.
    ``warnings`` are what no reader of the numbers should miss, ``notes`` the rest.
    """

    title: str
    columns: tuple[ColumnSpec, ...]
    rows: tuple[TableRow, ...]
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    endpoint: ColumnSpec

    @property
    def seeds_per_row(self) -> list[int]:
        """The records of each row that is no constant."""
        return [len(row.records) for row in self.rows if not row.spec.constant]

    @property
    def num_records(self) -> int:
        return sum(len(row.records) for row in self.rows)


@dataclass(frozen=True)
class Table:
    """A computed table: the same records give the same bytes in every form.

    ``title`` has the models that ran, ``subject`` is without. ``added`` are the overrides that a command line added to
    all of its runs.
    """

    name: str
    scale: str
    title: str
    subject: str
    note: str
    blocks: tuple[Block, ...] = field(repr=False)
    primary: Primary
    spec: TableSpec = field(repr=False)
    added: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """Of its files' names; that of the table as described is another."""
        mark = f"_with_{hashlib.sha256(' '.join(self.added).encode()).hexdigest()[:8]}" if self.added else ""
        return f"{self.name}_{self.scale}{mark}"

    @property
    def finding(self) -> str:
        """What the table shows, or that it shows nothing, in a sentence."""
        return self.primary.sentence

    @property
    def num_records(self) -> int:
        return sum(block.num_records for block in self.blocks)

    @property
    def commands(self) -> list[str]:
        """One command for each row that lacks a run, in the table's order."""
        return [row.command for block in self.blocks for row in block.rows if row.command]

    def markdown(self) -> str:
        """The page for people."""
        from ntl.results.markdown import render

        return render(self)

    def details(self) -> str:
        """Markdown with everything that the page leaves out."""
        from ntl.results.details import render

        return render(self)

    def latex(self) -> str:
        from ntl.results.latex import render

        return render(self)

    def csv(self) -> str:
        from ntl.results.flat import render

        return render(self)

    def cells(self) -> list[dict[str, Any]]:
        """Every cell as a flat dict: the rows of the CSV file, in JSON's types."""
        from ntl.results.flat import cells

        return cells(self)

    def rich(self) -> "RenderableType":
        """For ``rich.console.Console.print``."""
        from ntl.results.terminal import render

        return render(self)


def command(plan: RowPlan, seeds: Sequence[int]) -> str:
    """The shell command that makes the records of these seeds."""
    words = " ".join(plan.overrides)
    if len(seeds) == 1:
        return f"python train.py {words} seed={seeds[0]}"
    return f"python train.py -m {words} seed={','.join(map(str, seeds))}"


def by_seed(metric: str, have: Mapping[int, RunRecord]) -> dict[int, float | None]:
    """A metric in the records that have it, by seed; None where it is undefined."""
    return {seed: record.value(metric) for seed, record in sorted(have.items()) if record.has(metric)}


def _read_as_its_own(metric: str, records: Sequence[RunRecord]) -> str:
    # However a model is decoded, a constant answer is the same one; another parse rule may read it otherwise.
    name, _, suffix = metric.partition("@")
    return name if any(suffix in record.config.get("beside", {}) for record in records) else metric


def _cell(column: ColumnSpec, row: RowSpec, values: dict[int, float | None], best: bool) -> Cell:
    summary = summarize(list(values.values())) if values else None
    return Cell(column, summary, tuple(values), tuple(row.paper.get(column.metric, ())), best)


def build_table(spec: str | TableSpec, records: Sequence[RunRecord], scale: str = "tiny") -> Table:
    """Compute a table of ``config/table`` (by name or as a loaded spec) from records alone.

    UserError: no such table or scale, two rows that claim one run, two records for one row and seed.
    """
    if isinstance(spec, str):
        spec = load_table_spec(spec)
    blocks: list[Block] = []
    parts = plan_table(spec, scale)
    primary: Primary | None = None
    wanted = spec.primary_of(scale)
    for block, plans in parts:
        by_row = [row_records(plan, records) for plan in plans]
        columns = tuple(block.columns)
        grid = _grid(columns, plans, by_row)
        named = block is spec.blocks[wanted.block]
        endpoint = next(c for c in columns if not named or c.metric == wanted.metric)
        learnt = beats_constants(endpoint, plans, grid)
        place = primary_place(wanted, block, scale, plans) if named else None
        compared = differences(columns, plans, grid, by_row, place)
        if place:
            primary = find_primary(wanted, block, place, plans, compared, learnt, by_row, grid)
        stand_ins = [stands_in(block, scale, plan) for plan in plans]
        rows = _rows(columns, plans, by_row, grid, learnt, stand_ins)
        told = [
            *notes(block, scale, plans, by_row),
            control_note(columns, plans, grid, learnt),
            *example_notes(columns, plans, by_row),
        ]
        cautions = warnings(block, scale, plans, by_row)
        blocks.append(
            Block(block.title, columns, rows, tuple(compared), tuple(cautions), tuple(filter(None, told)), endpoint)
        )
    whole = corrected([block.differences for block in blocks])
    blocks = [replace(block, differences=each) for block, each in zip(blocks, whole, strict=True)]
    assert primary is not None  # its block has every scale of the table
    return Table(
        spec.name,
        scale,
        heading(spec, scale, parts),
        spec.title,
        spec.note,
        tuple(blocks),
        primary,
        spec,
        computing(spec.added),
    )


def _grid(columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], by_row: Sequence[dict[int, RunRecord]]) -> Grid:
    grid: Grid = [{column.metric: by_seed(column.metric, have) for column in columns} for have in by_row]
    every = [record for have in by_row for record in have.values()]
    for plan, line in zip(plans, grid, strict=True):
        if plan.row.constant:
            keys = {c.metric: f"{_read_as_its_own(c.metric, every)}:{plan.row.constant}" for c in columns}
            line.update({metric: constant_values(key, every) for metric, key in keys.items()})
    return grid


def _rows(
    columns: Sequence[ColumnSpec],
    plans: Sequence[RowPlan],
    by_row: Sequence[dict[int, RunRecord]],
    grid: Grid,
    learnt: Sequence[bool | None],
    stand_ins: Sequence[bool],
) -> tuple[TableRow, ...]:
    best = best_rows(columns, plans, grid, learnt)
    rows = []
    for index, (plan, have, line) in enumerate(zip(plans, by_row, grid, strict=True)):
        cells = tuple(_cell(c, plan.row, line[c.metric], (index, c.metric) in best) for c in columns)
        if plan.row.constant and not any(cell.summary for cell in cells):
            continue  # a constant that no record scores has nothing to say and no command to run
        missing = tuple(seed for seed in plan.seeds if seed not in have)
        lacking = command(plan, missing) if missing else ""
        records = dict(sorted(have.items()))
        rows.append(TableRow(plan, records, cells, missing, lacking, learnt[index], stand_ins[index]))
    return tuple(rows)
