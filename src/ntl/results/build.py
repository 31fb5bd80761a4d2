"""A table built from run records: per cell mean, spread and interval over seeds, beside the paper's number."""

from collections.abc import Sequence

from ntl.results.compare import beats_constants, best_rows, by_seed, constant_values, correct, differences, find_primary
from ntl.results.match import RowPlan, computing, plan_table, row_records
from ntl.results.notes import control_note, example_notes, heading, is_stand_in, notes, warnings
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, ColumnSpec, TableSpec, load_table_spec
from ntl.results.table import Block, Primary, Row, Table
from ntl.system.errors import UserError


def build_table(spec: str | TableSpec, records: Sequence[RunRecord], scale: str = "tiny") -> Table:
    """Compute a table of ``config/table`` (by name or as a loaded spec) from records alone.

    UserError: no such table or scale, a row that cannot be composed.
    """
    if isinstance(spec, str):
        spec = load_table_spec(spec)
    blocks: list[Block] = []
    primary: Primary | None = None
    parts, wanted = plan_table(spec, scale), spec.primary_of(scale)
    for block, plans in parts:
        named, pair = block is spec.blocks[wanted.block], None
        endpoint = next(c for c in block.columns if not named or c.metric == wanted.metric)
        rows = _rows(block, scale, plans, records, endpoint)
        if named:
            group = block.scales[scale].labels.get(wanted.group, wanted.group)
            by_label = {row.spec.label: row for row in rows if row.spec.group == group and row.plan.overrides}
            pair = by_label[wanted.against], by_label[wanted.row]
        found = Block(
            block.title,
            block.columns,
            [row for row in rows if not row.spec.constant or any(row.values.values())],
            differences(block.columns, rows, pair, endpoint.metric),
            warnings(block, scale, rows),
            [*notes(block, scale, rows), *control_note(block.columns, rows), *example_notes(block.columns, rows)],
            endpoint,
        )
        blocks.append(found)
        if pair:
            primary = find_primary(wanted, pair, found)
    correct(blocks)
    assert primary is not None  # its block has every scale of the table
    title = heading(spec, scale, parts)
    return Table(spec.name, scale, title, spec.title, spec.note, blocks, primary, spec, computing(spec.added))


def build_tables(names: Sequence[str], scale: str | None, records: Sequence[RunRecord]) -> list[Table]:
    """The tables of these names at a scale (None: each of theirs). UserError: no such table, none with that scale."""
    specs = [load_table_spec(name) for name in names]
    pairs = [(spec, each) for spec in specs for each in spec.scales if scale in (None, each)]
    if not pairs:
        known = dict.fromkeys(each for spec in specs for each in spec.scales)
        raise UserError(f"no table has the scale {scale!r}: choose from {', '.join(known)}")
    return [build_table(spec, records, each) for spec, each in pairs]


def _rows(
    block: BlockSpec, scale: str, plans: Sequence[RowPlan], records: Sequence[RunRecord], endpoint: ColumnSpec
) -> list[Row]:
    by_row = [row_records(plan, records) for plan in plans]
    every = [record for have in by_row for record in have.values()]
    rows = []
    for plan, have in zip(plans, by_row, strict=True):
        values = {
            column.metric: constant_values(_constant_key(column.metric, plan.row.constant, every), every)
            if plan.row.constant
            else by_seed(column.metric, have)
            for column in block.columns
        }
        rows.append(Row(plan, have, values, is_stand_in(block, scale, plan)))
    for row, learnt in zip(rows, beats_constants(endpoint, rows), strict=True):
        row.learnt = learnt
    for column in block.columns:
        for row in best_rows(column, rows):
            row.best |= {column.metric}
    return rows


def _constant_key(metric: str, constant: str, records: Sequence[RunRecord]) -> str:
    # A constant answer does not depend on the decoding; another parse rule may read it differently.
    name, _, reading = metric.partition("@")
    decoded = any(reading in record.config.get("beside", {}) for record in records)
    return f"{name if decoded else metric}:{constant}"
