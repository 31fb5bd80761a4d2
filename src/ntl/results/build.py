"""A table built from run records: per cell mean, spread and interval over seeds, beside the paper's number."""

from collections.abc import Sequence
from dataclasses import replace

from ntl.results.compare import (
    beats_constants,
    best_rows,
    by_seed,
    constant_values,
    corrected,
    differences,
    find_primary,
    primary_pair,
)
from ntl.results.match import RowPlan, computing, plan_table, row_records
from ntl.results.notes import control_note, example_notes, heading, is_stand_in, notes, warnings
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, ColumnSpec, TableSpec, load_table_spec
from ntl.results.table import Block, Cell, Primary, Row, Table, TableRow
from ntl.system.errors import UserError


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
        named = block is spec.blocks[wanted.block]
        columns = tuple(block.columns)
        endpoint = next(c for c in columns if not named or c.metric == wanted.metric)
        rows = _rows(block, scale, plans, records, endpoint)
        pair = primary_pair(wanted, block, scale, rows) if named else None
        compared = differences(columns, rows, pair, endpoint.metric)
        if pair:
            primary = find_primary(wanted, endpoint, pair, rows, compared)
        remarks = [*notes(block, scale, rows), control_note(columns, rows), *example_notes(columns, rows)]
        blocks.append(
            Block(
                block.title,
                columns,
                _table_rows(columns, rows),
                tuple(compared),
                tuple(warnings(block, scale, rows)),
                tuple(filter(None, remarks)),
                endpoint,
            )
        )
    whole = corrected([block.differences for block in blocks])
    blocks = [replace(block, differences=each) for block, each in zip(blocks, whole, strict=True)]
    assert primary is not None  # its block has every scale of the table
    title, added = heading(spec, scale, parts), computing(spec.added)
    return Table(spec.name, scale, title, spec.title, spec.note, tuple(blocks), primary, spec, added)


def build_tables(names: Sequence[str], scale: str | None, records: Sequence[RunRecord]) -> list[Table]:
    """The tables of these names at a scale (None: each of theirs). UserError: no such table, none with that scale."""
    specs = [load_table_spec(name) for name in names]
    pairs = [(spec, each) for spec in specs for each in spec.scales if scale in (None, each)]
    if not pairs:
        known = dict.fromkeys(each for spec in specs for each in spec.scales)
        raise UserError(f"no table has the scale {scale!r}: choose from {', '.join(known)}")
    return [build_table(spec, records, each) for spec, each in pairs]


def _constant_key(metric: str, constant: str, records: Sequence[RunRecord]) -> str:
    # A constant answer does not depend on the decoding; another parse rule may read it differently.
    name, _, suffix = metric.partition("@")
    read = any(suffix in record.config.get("beside", {}) for record in records)
    return f"{name if read else metric}:{constant}"


def _rows(
    block: BlockSpec, scale: str, plans: Sequence[RowPlan], records: Sequence[RunRecord], endpoint: ColumnSpec
) -> list[Row]:
    by_row = [dict(sorted(row_records(plan, records).items())) for plan in plans]
    every = [record for have in by_row for record in have.values()]
    rows = []
    for plan, have in zip(plans, by_row, strict=True):
        metrics, constant = [column.metric for column in block.columns], plan.row.constant
        if constant:
            values = {metric: constant_values(_constant_key(metric, constant, every), every) for metric in metrics}
        else:
            values = {metric: by_seed(metric, have) for metric in metrics}
        rows.append(Row(plan, have, values, stand_in=is_stand_in(block, scale, plan)))
    return [replace(row, learnt=each) for row, each in zip(rows, beats_constants(endpoint, rows), strict=True)]


def _table_rows(columns: Sequence[ColumnSpec], rows: Sequence[Row]) -> tuple[TableRow, ...]:
    best = best_rows(columns, rows)
    found = []
    for row in rows:
        cells = []
        for column in columns:
            values, paper = row.values[column.metric], tuple(row.spec.paper.get(column.metric, ()))
            summary = row.summary(column) if values else None
            cells.append(Cell(column, summary, tuple(values), paper, (row, column.metric) in best))
        if row.spec.constant and not any(cell.summary for cell in cells):
            continue  # a constant that no record scores
        missing = tuple(seed for seed in row.plan.seeds if seed not in row.records)
        start = "python train.py -m" if len(missing) > 1 else "python train.py"
        command = f"{start} {' '.join(row.plan.overrides)} seed={','.join(map(str, missing))}" if missing else ""
        found.append(TableRow(**vars(row), cells=tuple(cells), missing=missing, command=command))
    return tuple(found)
