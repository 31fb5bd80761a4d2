"""Results in texts: what is between two marks of a page is written from the records, never by hand.

``<!-- difference: {table: evidence, row: "NTL-WAS, λ = 0.3", against: CE, metric: test/rmse_truth} -->`` begins one,
``<!-- end of difference -->`` ends it; ``KINDS`` lists the marks. In a page of dated headings (``## 2026-11-22: ...``)
only the entries of the newest day are written: older ones keep the numbers of their day.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from ntl.results.claims import PlaceSpec, TimingSpec, check_place
from ntl.results.compare import by_seed
from ntl.results.judge import BENCHMARKS, compare, find_block, models, read_timing
from ntl.results.notes import control_parts
from ntl.results.render.markdown import escape
from ntl.results.render.text import mean_and_interval
from ntl.results.table import Table
from ntl.results.text_tables import benchmark_table, paper_table, read_lines
from ntl.results.typed import read_typed_text
from ntl.system.errors import UserError

START = re.compile(r"<!-- (?P<kind>[a-z]+): (?P<place>.*?) -->", re.DOTALL)
DAY = re.compile(r"^## (\d{4}-\d\d-\d\d)\b", re.MULTILINE)


@dataclass
class FindingMark:
    """The finding of a table."""

    table: str = MISSING
    scale: str = "tiny"


@dataclass
class DifferenceMark(PlaceSpec):
    """``row`` minus ``against``: mean, interval, n and exact p."""

    scale: str = "tiny"


@dataclass
class MeanMark:
    """Mean and standard deviation of a row over its seeds, in a column of the table."""

    table: str = MISSING
    row: str = MISSING
    metric: str = MISSING
    group: str = ""
    block: int = 0
    scale: str = "tiny"


@dataclass
class ControlMark:
    """A list: for each table with records, the share of the largest gain that the control alone gives."""

    scale: str = "tiny"


@dataclass
class BenchmarkMark:
    """Lines of a file of ``results/benchmarks`` as a table; the fields are those of ``benchmark_table``."""

    file: str = MISSING
    columns: dict[str, str] = MISSING
    where: dict[str, Any] = field(default_factory=dict)


@dataclass
class PaperMark:
    """A table of the paper's tables and figures: of each its command and what is published."""


Tables = Sequence[Table]


def _table(name: str, scale: str, tables: Tables, where: str) -> Table:
    found = [table for table in tables if table.name == name]
    if not found:
        raise UserError(f"{where}: no table {name!r}: choose from {', '.join(sorted({each.name for each in tables}))}")
    for table in found:
        if table.scale == scale:
            return table
    raise UserError(f"{where}: table {name!r} has no scale {scale!r}: choose from {', '.join(t.scale for t in found)}")


def _finding(mark: FindingMark, tables: Tables, where: str, folder: str) -> str:
    return escape(_table(mark.table, mark.scale, tables, where).finding)


def _difference(mark: DifferenceMark, tables: Tables, where: str, folder: str) -> str:
    table = _table(mark.table, mark.scale, tables, where)
    check_place(mark, table.spec, where)
    compared = compare(table, mark)
    if compared is None or not compared.text:
        return "no run"
    unlearnt = [row.spec.label for row in (compared.row, compared.against) if row.learnt is False]
    note = f"; not learnt: {escape(' and '.join(dict.fromkeys(unlearnt)))}" if unlearnt else ""
    return f"{compared.text}{note}"


def _mean(mark: MeanMark, tables: Tables, where: str, folder: str) -> str:
    table = _table(mark.table, mark.scale, tables, where)
    found = find_block(table, mark.block, mark.group) if 0 <= mark.block < len(table.spec.blocks) else None
    if found is None:
        raise UserError(f"{where}: table {mark.table!r} has no such block or group at scale {mark.scale!r}")
    block, group = found
    rows = [row for row in block.rows if (row.spec.group, row.spec.label) == (group, mark.row)]
    cells = [cell for row in rows for cell in row.cells if cell.column.metric == mark.metric]
    if not cells:
        raise UserError(f"{where}: table {mark.table!r} has no row {mark.row!r} with a column {mark.metric!r}")
    text = mean_and_interval(cells[0])[0]
    return "no run" if text == "-" else text


def _control(mark: ControlMark, tables: Tables, where: str, folder: str) -> str:
    found: dict[str, list[str]] = {}
    for table in (table for table in tables if table.scale == mark.scale and table.num_records):
        parts = []
        named = find_block(table, table.spec.primary_of(table.scale).block)
        for block in table.blocks:
            shown = [column for column in block.columns if not column.details]
            grid = [{c.metric: by_seed(c.metric, row.records) for c in block.columns} for row in block.rows]
            plans, learnt = [row.plan for row in block.rows], [row.learnt for row in block.rows]
            told = control_parts([block.endpoint] if named and block is named[0] else shown, plans, grid, learnt)
            if told:
                title = f"{block.title}: " if len(table.blocks) > 1 else ""
                parts.append(f"{title}{'; '.join(told)}")
        what = table.subject.partition(": ")[0]
        ran = models(row for block in table.blocks for row in block.rows)
        text = ". ".join(parts) or "too few runs to say"
        found.setdefault(text, []).append(f"[{escape(what)}]({folder}/{table.stem}.md) ({escape(ran)})")
    lines = [f"- {', '.join(names)}: {escape(text)}." for text, names in found.items()]
    return "\n" + "\n".join(lines) + "\n"


def _timing(mark: TimingSpec, tables: Tables, where: str, folder: str) -> str:
    value, low, high, rounds = read_timing(mark, where, BENCHMARKS)
    return f"{value:.2f} [{low:.2f}, {high:.2f}], {rounds} rounds"


def _benchmark(mark: BenchmarkMark, tables: Tables, where: str, folder: str) -> str:
    return f"\n{benchmark_table(read_lines(BENCHMARKS / mark.file, where), mark.columns, mark.where, where)}\n"


def _paper(mark: PaperMark, tables: Tables, where: str, folder: str) -> str:
    return f"\n{paper_table(tables, folder)}\n"


# Kind of mark -> the schema of what follows its colon, and the function that writes its text.
KINDS: dict[str, tuple[Any, Callable[..., str]]] = {
    "finding": (FindingMark, _finding),
    "difference": (DifferenceMark, _difference),
    "mean": (MeanMark, _mean),
    "control": (ControlMark, _control),
    "timing": (TimingSpec, _timing),
    "benchmark": (BenchmarkMark, _benchmark),
    "paper": (PaperMark, _paper),
}


def newest_day(page: str) -> int:
    """The offset at which the entries of earlier days begin; the end of a page without dated headings."""
    days = list(DAY.finditer(page))
    return next((each.start() for each in days if each[1] != days[0][1]), len(page))


def fill(page: str, path: Path, tables: Tables, folder: str) -> str:
    """The text ``page`` of the file ``path``, every mark filled in; ``folder`` is the tables' folder as seen from it.

    UserError names the page and the mark: an unknown kind, a place that no table has, a mark without its end.
    """
    end = newest_day(page)
    live, rest, done = page[:end], page[end:], []
    at = 0
    while match := START.search(live, at):
        kind, where = match["kind"], f"{path}: <!-- {match['kind']} -->"
        if kind not in KINDS:
            raise UserError(f"{where}: there is no such mark; choose from {', '.join(KINDS)}")
        schema, write = KINDS[kind]
        closing = f"<!-- end of {kind} -->"
        close = live.find(closing, match.end())
        following = START.search(live, match.end())
        if close < 0 or (following and following.start() < close):
            raise UserError(f"{where}: {match['place'][:60]}: the mark has no end; add {closing}")
        mark = read_typed_text(schema, match["place"], where)
        done += [live[at : match.end()], write(mark, tables, where, folder)]
        at = close
    return "".join([*done, live[at:], rest])
