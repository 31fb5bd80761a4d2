"""Cells as text, the same in every form of a table."""

from typing import TYPE_CHECKING

from ntl.config.table import Better, ColumnSpec
from ntl.results.compare import DifferenceCell

if TYPE_CHECKING:
    from ntl.results.table import Block, Cell, TableRow

LEGEND = (
    "Mean ± standard deviation over n seeds [95% t interval]; for n = 2 both values. "
    "Bold: the best row, where its difference from the second best, paired by seed, has an interval without 0."
)
PAPER_LEGEND = " In brackets behind the paper's value: ours minus it."
DIFFERENCE_LEGEND = (
    "Mean difference over the seeds of both rows [95% t interval] seeds with that sign; bold: the interval excludes 0. "
    "With one common seed an interval is a bootstrap over test examples. Not corrected for the number of comparisons."
)
# From here on an exponent: a column is not to be wide because of one run that went astray.
LARGE = 1e7
ARROWS = {Better.higher: " ↑", Better.lower: " ↓", Better.neither: ""}


def legend(block: "Block") -> str:
    papers = any(cell.paper for row in block.rows for cell in row.cells)
    return LEGEND + PAPER_LEGEND if papers else LEGEND


def header(column: ColumnSpec) -> str:
    return column.header + ARROWS[column.better]


def number(value: float, spec: str, sign: str = "") -> str:
    """A number by a format spec, without a minus sign before a zero; from ten million on with an exponent."""
    return format(value, f"{sign}.2e" if abs(value) >= LARGE else f"{sign}z{spec}")


def mean_and_interval(cell: "Cell") -> tuple[str, str]:
    """The mean with its spread, and the interval, empty where there is none.

    ``-`` without a record, ``undefined`` for a metric that has no value; for one or two seeds the values themselves.
    """
    summary, spec = cell.summary, cell.column.format
    if summary is None:
        return "-", ""
    if summary.mean is None:
        return "undefined", ""
    if summary.sd is None or summary.low is None or summary.high is None:
        text, interval = ", ".join(number(value, spec) for value in summary.values), ""
    else:
        text = f"{number(summary.mean, spec)} ± {number(summary.sd, spec)}"
        interval = f"[{number(summary.low, spec)}, {number(summary.high, spec)}]"
    if summary.undefined:
        text = f"undefined in {summary.undefined} of {summary.n + summary.undefined}, else {text}"
    return text, interval


def value_parts(cell: "Cell", row: "TableRow") -> tuple[str, str]:
    """Those of ``mean_and_interval``, and behind the interval how many seeds have the metric where not all do."""
    text, interval = mean_and_interval(cell)
    if cell.summary is None or cell.summary.mean is None:
        return text, interval
    if not row.spec.constant and len(cell.seeds) != len(row.records):
        interval = f"{interval} (n={len(cell.seeds)})".strip()
    return text, interval


def value_text(cell: "Cell", row: "TableRow") -> str:
    """Both of ``value_parts`` in one line."""
    return " ".join(filter(None, value_parts(cell, row)))


def paper_text(cell: "Cell") -> str:
    """The paper's number as printed there, empty where it prints none."""
    return " ± ".join(number(value, cell.column.paper_format) for value in cell.paper)


def paper_line(cell: "Cell") -> str:
    """The paper's number and, where there is a mean of ours, how far that is from it; empty where it prints none."""
    text, away = paper_text(cell), paper_difference(cell)
    return text if away is None else f"{text} ({number(away, cell.column.format, '+')})"


def paper_difference(cell: "Cell") -> float | None:
    """Our mean minus the paper's; None without either."""
    mean = cell.summary.mean if cell.summary else None
    return mean - cell.paper[0] if cell.paper and mean is not None else None


def difference_text(cell: DifferenceCell) -> str:
    """``-`` without a common seed; the values themselves for two seeds, the bootstrap interval for one."""
    spec = cell.column.format
    if cell.paired is None:
        return "-"
    summary = cell.paired.differences
    if cell.examples is not None:
        mean, low, high = (number(value, spec, "+") for value in cell.examples)
        return f"{mean} [{low}, {high}]"
    if summary.mean is None:
        return "undefined"
    if summary.low is None or summary.high is None:
        text = ", ".join(number(value, spec, "+") for value in summary.values)
    else:
        text = (
            f"{number(summary.mean, spec, '+')} [{number(summary.low, spec, '+')}, {number(summary.high, spec, '+')}]"
        )
    return f"{text} {cell.paired.agree}/{summary.n}" if summary.n > 1 else text


def not_in_records(block: "Block") -> list[str]:
    """A line for each metric that a row's records lack though the runs are there."""
    lines = []
    for row in block.rows:
        lost = [
            cell.column.metric for cell in row.cells if row.records and not row.spec.constant and cell.summary is None
        ]
        if lost:
            runs = ", ".join(record.id for record in row.records.values())
            lines.append(f"{row.spec.label}: {', '.join(lost)} not in the records of {runs}")
    return lines
