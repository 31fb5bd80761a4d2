"""A cell's texts: ours, the paper's, and the difference of the two, under each rule that records are scored by."""

from dataclasses import dataclass, replace

from ntl.results.render.text import number, paper_difference, paper_text, value_parts
from ntl.results.spec import BlockSpec, ColumnSpec, PrimarySpec, RowSpec, TableSpec
from ntl.results.table import Cell, TableRow

# Name of the rule -> the suffix of its metrics.
RULES = {"default": "", "paper": "@paper", "expectation": "@expectation"}
ABSENT = "-"


@dataclass(frozen=True)
class CellText:
    """``interval`` is empty where there is none; ``paper`` is not, and ``difference`` is our mean minus it.

    ``beside`` says that the model is the paper's own, so that its number belongs beside ours.
    """

    ours: str
    interval: str
    paper: str
    difference: str
    best: bool
    beside: bool


NOTHING = CellText(ABSENT, "", ABSENT, ABSENT, best=False, beside=False)


def cell_text(cell: Cell, row: TableRow) -> CellText:
    """As the Markdown has it: ``-`` without a record, ``undefined`` for a metric that has no value.

    How many seeds a number is of stands behind the interval only where it is not of all of its row's.
    """
    ours, interval = value_parts(cell, row)
    away = None if cell.summary is None or cell.summary.undefined else paper_difference(cell)
    difference = ABSENT if away is None else number(away, cell.column.format, "+")
    paper = paper_text(cell)
    return CellText(ours, interval, paper or ABSENT, difference, cell.best, bool(paper) and not row.stand_in)


def under(rule: str, spec: TableSpec) -> TableSpec:
    """The same table with every column scored by ``rule``, and the paper's numbers beside it."""
    suffix = RULES[rule]

    def ruled(primary: PrimarySpec) -> PrimarySpec:
        return replace(primary, metric=_ruled(primary.metric, suffix))

    primary_at = {scale: ruled(primary) for scale, primary in spec.primary_at.items()}
    blocks = [_block(block, suffix) for block in spec.blocks]
    return replace(spec, blocks=blocks, primary=ruled(spec.primary), primary_at=primary_at)


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
