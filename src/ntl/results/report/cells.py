"""A cell's texts: ours, the paper's, and the difference of the two, under each rule that records are scored by."""

from dataclasses import dataclass, replace

from ntl.config.table import BlockSpec, ColumnSpec, RowSpec, TableSpec
from ntl.results.table import Cell, TableRow
from ntl.results.text import mean_and_interval, number, paper_difference

# Name of the rule -> the suffix of its metrics.
RULES = {"default": "", "paper": "@paper", "expectation": "@expectation"}
ABSENT = "-"


@dataclass(frozen=True)
class CellText:
    """``interval`` and ``n`` are empty where there is none; ``difference`` is our mean minus the paper's."""

    ours: str
    interval: str
    n: str
    difference: str
    best: bool


NOTHING = CellText(ABSENT, "", "", ABSENT, False)


def cell_text(cell: Cell, row: TableRow) -> CellText:
    """As the Markdown has it: ``-`` without a record, ``undefined`` for a metric that has no value."""
    if cell.summary is None:
        return NOTHING
    ours, interval = mean_and_interval(cell)
    n = "" if row.spec.constant else f"n={len(cell.seeds)}"
    away = None if cell.summary.undefined else paper_difference(cell)
    difference = ABSENT if away is None else number(away, cell.column.format, "+")
    return CellText(ours, interval, n, difference, cell.best)


def under(rule: str, spec: TableSpec) -> TableSpec:
    """The same table with every column scored by ``rule``, and the paper's numbers beside it."""
    suffix = RULES[rule]
    primary = replace(spec.primary, metric=_ruled(spec.primary.metric, suffix))
    return replace(spec, blocks=[_block(block, suffix) for block in spec.blocks], primary=primary)


def _ruled(metric: str, suffix: str) -> str:
    # A column that names its own decoding is scored by that.
    return metric if "@" in metric else metric + suffix


def _block(block: BlockSpec, suffix: str) -> BlockSpec:
    columns: list[ColumnSpec] = [replace(column, metric=_ruled(column.metric, suffix)) for column in block.columns]
    rows: list[RowSpec] = [
        replace(row, paper={_ruled(metric, suffix): values for metric, values in row.paper.items()})
        for row in block.rows
    ]
    return replace(block, columns=columns, rows=rows)
