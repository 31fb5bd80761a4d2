"""A cell's texts: ours, the paper's, and the difference of the two, under each rule that records are scored by."""

from dataclasses import dataclass, replace

from ntl.config.table import BlockSpec, ColumnSpec, RowSpec, TableSpec
from ntl.results.table import Cell, TableRow
from ntl.results.text import number

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
    summary, spec = cell.summary, cell.column.format
    if summary is None:
        return NOTHING
    n = "" if row.spec.constant else f"n={len(cell.seeds)}"
    if summary.mean is None:
        return CellText("undefined", "", n, ABSENT, False)
    ours, interval = ", ".join(number(value, spec) for value in summary.values), ""
    if summary.sd is not None and summary.low is not None and summary.high is not None:
        ours = f"{number(summary.mean, spec)} ± {number(summary.sd, spec)}"
        interval = f"[{number(summary.low, spec)}, {number(summary.high, spec)}]"
    if summary.undefined:
        return CellText(
            f"undefined in {summary.undefined} of {len(cell.seeds)}, else {ours}", interval, n, ABSENT, False
        )
    difference = number(summary.mean - cell.paper[0], spec, "+") if cell.paper else ABSENT
    return CellText(ours, interval, n, difference, cell.best)


def under(rule: str, spec: TableSpec) -> TableSpec:
    """The same table with every column scored by ``rule``, and the paper's numbers beside it."""
    suffix = RULES[rule]
    return replace(spec, blocks=[_block(block, suffix) for block in spec.blocks])


def _block(block: BlockSpec, suffix: str) -> BlockSpec:
    def ruled(metric: str) -> str:
        # A column that names its own decoding is scored by that.
        return metric if "@" in metric else metric + suffix

    columns: list[ColumnSpec] = [replace(column, metric=ruled(column.metric)) for column in block.columns]
    rows: list[RowSpec] = [
        replace(row, paper={ruled(metric): values for metric, values in row.paper.items()}) for row in block.rows
    ]
    return replace(block, columns=columns, rows=rows)
