"""Cells and legends as text, for all renderers."""

import math
import re
from collections.abc import Sequence

from ntl.evaluation.metrics import Better
from ntl.results.spec import ColumnSpec
from ntl.results.table import Block, Row

BOLD_LEGEND = (
    "Bold: the best row, where its gain over the second best, paired by seed, has an interval without 0 that is not "
    "within 5%; never one that is no better than a constant answer."
)
LEGEND = f"Mean ± standard deviation over n seeds [95% t interval]; for n = 2 both values. {BOLD_LEGEND}"
# From here on an exponent: one diverged run must not widen a column.
LARGE = 1e7
HUGE = 1e4  # the same on the page, but for a format that groups digits: counts stay exact
ARROWS = {Better.higher: " ↑", Better.lower: " ↓", Better.neither: ""}


def constant_legend(block: Block) -> str:
    """Where the mark of a row that learns nothing is decided; empty where no row has it."""
    if all(row.learnt is not False for row in block.rows):
        return ""
    return f" No better than a constant answer: in {block.endpoint.header}."


def short_legend(block: Block) -> str:
    """The legend of a block on the page."""
    best = any(column.metric in row.best for row in block.rows for column in block.shown)
    bold = f" {BOLD_LEGEND}" if best else " No row is clearly the best in any column."
    return f"Mean ± standard deviation over seeds; for n = 2 both values.{bold}{constant_legend(block)}"


def seeds_text(counts: Sequence[int]) -> str:
    """``3 seeds``, or ``1 to 3 seeds`` where rows differ."""
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low if low == high else f'{low} to {high}'} seed{'s' * (high != 1)}"


def header(column: ColumnSpec) -> str:
    return column.header + ARROWS[column.better]


def number(value: float, spec: str, sign: str = "") -> str:
    """A number by a format spec, without a minus sign before a zero; from ten million on with an exponent."""
    return format(value, f"{sign}.2e" if abs(value) >= LARGE else f"{sign}z{spec}")


def _compact(value: float) -> str:
    # 1e10, not 1e+10
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _coarser(spec: str, spread: float) -> str:
    """The format with no more decimals than it takes to show two digits of a spread."""
    found = re.fullmatch(r"\.(\d+)([f%])", spec)
    if not found or spread <= 0:
        return spec
    digits = 1 - math.floor(math.log10(100 * spread if found[2] == "%" else spread))
    return f".{max(0, min(int(found[1]), digits))}{found[2]}"


def short_text(row: Row, column: ColumnSpec) -> str:
    """``mean ± sd`` with no more digits than the spread has; from `HUGE` on one digit and an exponent.

    A second line gives the number of seeds where the metric is missing or undefined in some runs.
    """
    summary, spec = row.summary(column), column.short or column.format
    huge = LARGE if "," in spec else HUGE
    if not row.values[column.metric]:
        return "-"
    if summary.mean is None:
        return "undefined"
    if summary.sd is None or summary.n < 3:
        text = ", ".join(_compact(v) if abs(v) >= huge else number(v, spec) for v in summary.values)
    elif max(abs(summary.mean), summary.sd) >= huge:
        text = f"{_compact(summary.mean)} ± {_compact(summary.sd)}"
    else:
        fitting = _coarser(spec, summary.sd)
        text = f"{number(summary.mean, fitting)} ± {number(summary.sd, fitting)}"
    whole = row.spec.constant or summary.n == len(row.records)
    return text if whole else f"{text}\n{summary.n} of {len(row.records)} seeds"


def value_parts(row: Row, column: ColumnSpec) -> tuple[str, str]:
    """The mean with its spread, and the interval, empty where there is none; with n where some runs lack the metric.

    ``-`` without a record, ``undefined`` for a metric that has no value; for one or two seeds the values themselves.
    """
    summary, spec = row.summary(column), column.format
    if not row.values[column.metric]:
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
    if not row.spec.constant and (n := len(row.values[column.metric])) != len(row.records):
        interval = f"{interval} (n={n})".strip()
    return text, interval


def paper_text(row: Row, column: ColumnSpec) -> str:
    """The paper's number as printed there, empty where it prints none."""
    return " ± ".join(number(value, column.paper_format) for value in row.spec.paper.get(column.metric, ()))


def paper_line(row: Row, column: ColumnSpec) -> str:
    """The paper's number and, in brackets, ours minus it; empty where the paper prints none."""
    text, away = paper_text(row, column), paper_difference(row, column)
    return text if away is None else f"{text} ({number(away, column.format, '+')})"


def paper_difference(row: Row, column: ColumnSpec) -> float | None:
    """Our mean minus the paper's; None without either."""
    mean, paper = row.summary(column).mean, row.spec.paper.get(column.metric)
    return mean - paper[0] if paper and mean is not None else None
