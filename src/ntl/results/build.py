"""A table built from run records: per cell mean, spread and interval over seeds, beside the paper's number."""

from collections.abc import Sequence
from dataclasses import replace

from ntl.results.compare import (
    Grid,
    beats_constants,
    best_rows,
    by_seed,
    constant_values,
    corrected,
    differences,
    find_primary,
    primary_place,
)
from ntl.results.match import RowPlan, computing, plan_table, row_records
from ntl.results.notes import control_note, example_notes, heading, is_stand_in, notes, warnings
from ntl.results.record import RunRecord
from ntl.results.spec import ColumnSpec, RowSpec, TableSpec, load_table_spec
from ntl.results.statistics import summarize
from ntl.results.table import Block, Cell, Primary, Table, TableRow


def train_command(plan: RowPlan, seeds: Sequence[int]) -> str:
    """The shell command that trains the runs of these seeds."""
    words = " ".join(plan.overrides)
    if len(seeds) == 1:
        return f"python train.py {words} seed={seeds[0]}"
    return f"python train.py -m {words} seed={','.join(map(str, seeds))}"


def _constant_metric(metric: str, records: Sequence[RunRecord]) -> str:
    # A constant answer does not depend on the decoding; another parse rule may read it differently.
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
        stand_ins = [is_stand_in(block, scale, plan) for plan in plans]
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
            keys = {c.metric: f"{_constant_metric(c.metric, every)}:{plan.row.constant}" for c in columns}
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
            continue  # a constant that no record scores
        missing = tuple(seed for seed in plan.seeds if seed not in have)
        lacking = train_command(plan, missing) if missing else ""
        records = dict(sorted(have.items()))
        rows.append(TableRow(plan, records, cells, missing, lacking, learnt[index], stand_ins[index]))
    return tuple(rows)
