"""Results in texts: what is between two marks of a page is written from the records, never by hand.

``<!-- difference: {table: evidence, row: "NTL-WAS, λ = 0.3", against: CE, metric: test/rmse_truth} -->`` begins one,
``<!-- end of difference -->`` ends it; ``KINDS`` lists the marks. In a page of dated headings (``## 2026-11-22: ...``)
only the entries of the newest day are written: older ones keep the numbers of their day.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from ntl.results.claims import (
    BENCHMARKS,
    PlaceSpec,
    TimingSpec,
    check_place,
    compare,
    find_block,
    models,
    read_timing,
)
from ntl.results.figures.spec import figure_names, load_figure_spec
from ntl.results.load import read_rows
from ntl.results.match import leaves
from ntl.results.notes import control_parts
from ntl.results.publish import UNKNOWN
from ntl.results.render.markdown import escape, line
from ntl.results.render.text import mean_and_interval
from ntl.results.spec import read_typed_text
from ntl.results.table import Table, TableRow
from ntl.system.errors import UserError, one_line_errors

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
class RowMark:
    """A row of a table."""

    table: str = MISSING
    row: str = MISSING
    group: str = ""
    block: int = 0
    scale: str = "tiny"


@dataclass
class MeanMark(RowMark):
    """Mean and standard deviation of a row over its seeds, in a column of the table."""

    metric: str = MISSING


@dataclass
class ControlMark:
    """A list: for each table with records, the share of the largest gain that the control alone gives."""

    scale: str = "tiny"


@dataclass
class AnswersMark(RowMark):
    """A table of typical wrong answers of a row's first run, by seed, whose published record has them."""

    split: str = MISSING


@dataclass
class BenchmarkMark:
    """A table of the lines of a file of ``results/benchmarks`` that have a value, or one of a list, in a field.

    ``columns`` has the field of each header, and after a colon how its number is written: ``ratio:.2f``. A field with
    ``<field>_low`` and ``<field>_high`` gets them in brackets.
    """

    file: str = MISSING
    columns: dict[str, str] = MISSING
    where: dict[str, Any] = field(default_factory=dict)


@dataclass
class PaperMark:
    """A line for each table and figure of the paper: its command, what is published, and the scales without a record.

    A scale of which some runs lack a record says so.
    """


@dataclass(frozen=True)
class _Context:
    """``where`` names the mark in a UserError; ``folder`` is that of the tables as seen from the page."""

    tables: Sequence[Table]
    where: str
    folder: str

    def table(self, name: str, scale: str) -> Table:
        found = {table.scale: table for table in self.tables if table.name == name}
        if not found:
            names = sorted({each.name for each in self.tables})
            raise UserError(f"{self.where}: no table {name!r}: choose from {', '.join(names)}")
        if scale not in found:
            raise UserError(f"{self.where}: table {name!r} has no scale {scale!r}: choose from {', '.join(found)}")
        return found[scale]


def _finding(mark: FindingMark, at: _Context) -> str:
    return escape(at.table(mark.table, mark.scale).finding)


def _difference(mark: DifferenceMark, at: _Context) -> str:
    table = at.table(mark.table, mark.scale)
    check_place(mark, table.spec, at.where)
    compared = compare(table, mark)
    if compared is None or not compared.text:
        return "no run"
    unlearnt = [row.spec.label for row in (compared.row, compared.against) if row.learnt is False]
    note = f"; not learnt: {escape(' and '.join(dict.fromkeys(unlearnt)))}" if unlearnt else ""
    return f"{compared.text}{note}"


def _row(mark: RowMark, at: _Context) -> TableRow:
    table = at.table(mark.table, mark.scale)
    found = find_block(table, mark.block, mark.group) if 0 <= mark.block < len(table.spec.blocks) else None
    if found is None:
        raise UserError(f"{at.where}: table {mark.table!r} has no such block or group at scale {mark.scale!r}")
    block, group = found
    rows = [row for row in block.rows if (row.spec.group, row.spec.label) == (group, mark.row)]
    if not rows:
        raise UserError(f"{at.where}: table {mark.table!r} has no row {mark.row!r}")
    return rows[0]


def _mean(mark: MeanMark, at: _Context) -> str:
    cells = [cell for cell in _row(mark, at).cells if cell.column.metric == mark.metric]
    if not cells:
        raise UserError(f"{at.where}: table {mark.table!r} has no row {mark.row!r} with a column {mark.metric!r}")
    text = mean_and_interval(cells[0])[0]
    return "no run" if text == "-" else text


def _answers(mark: AnswersMark, at: _Context) -> str:
    runs = [run.typical[mark.split] for _, run in sorted(_row(mark, at).records.items()) if mark.split in run.typical]
    if not runs:
        return "no run"
    keys = ("question", "answer", "prediction", "kind")
    lines = [[escape(str(each[key])) for key in keys] for each in runs[0]]
    table = "\n".join(map(line, [["question", "right", "answer", "kind"], ["---", "---:", "---:", "---"], *lines]))
    return f"\n{table}\n"


def _control(mark: ControlMark, at: _Context) -> str:
    found: dict[str, list[str]] = {}
    for table in (table for table in at.tables if table.scale == mark.scale and table.num_records):
        parts = []
        named = find_block(table, table.spec.primary_of(table.scale).block)
        for block in table.blocks:
            primary = named is not None and block is named[0]
            shown = [block.endpoint] if primary else block.shown
            if shares := control_parts(shown, block.rows):
                title = f"{block.title}: " if len(table.blocks) > 1 else ""
                parts.append(f"{title}{'; '.join(shares)}")
        what = table.subject.partition(": ")[0]
        ran = models(row for block in table.blocks for row in block.rows)
        text = ". ".join(parts) or "too few runs to say"
        found.setdefault(text, []).append(f"[{escape(what)}]({at.folder}/{table.stem}.md) ({escape(ran)})")
    lines = [f"- {', '.join(names)}: {escape(text)}." for text, names in found.items()]
    return "\n" + "\n".join(lines) + "\n"


def _timing(mark: TimingSpec, at: _Context) -> str:
    value, low, high, rounds = read_timing(mark, at.where, BENCHMARKS)
    return f"{value:.2f} [{low:.2f}, {high:.2f}], {rounds} rounds"


def _read_lines(path: Path, where: str) -> list[dict[str, str]]:
    """The lines of a CSV file, or the entries of a JSON list, whose inner keys are joined by dots."""
    if not path.is_file():
        raise UserError(f"{where}: there is no {path}")
    if path.suffix != ".json":
        return read_rows(path)
    with one_line_errors("read", path):
        entries = json.loads(path.read_text(encoding="utf-8"))
    return [{key: str(value) for key, value in leaves(entry).items()} for entry in entries]


def _benchmark(mark: BenchmarkMark, at: _Context) -> str:
    lines = _read_lines(BENCHMARKS / mark.file, at.where)
    known = lines[0] if lines else {}
    fields = {header: field.partition(":")[::2] for header, field in mark.columns.items()}
    for name in (*mark.where, *(name for name, _ in fields.values())):
        if name not in known:
            raise UserError(f"{at.where}: there is no field {name!r}: choose from {', '.join(known)}")
    wanted = {name: value if isinstance(value, list) else [value] for name, value in mark.where.items()}
    chosen = [each for each in lines if all(each[name] in map(str, values) for name, values in wanted.items())]
    if not chosen:
        named = ", ".join(f"{name}={value}" for name, value in mark.where.items())
        raise UserError(f"{at.where}: where: no line has {named}")
    try:
        rows = [[_cell(each, name, style) for name, style in fields.values()] for each in chosen]
    except ValueError as error:
        raise UserError(f"{at.where}: columns: {error}") from error
    ruler = ["---:" if style else "---" for _, style in fields.values()]
    table = "\n".join(map(line, [list(fields), ruler, *rows]))
    return f"\n{table}\n"


def _cell(row: Mapping[str, str], name: str, style: str) -> str:
    if not style or not row[name]:
        return escape(row[name])
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    interval = f" [{float(low):{style}}, {float(high):{style}}]" if low and high else ""
    return f"{float(row[name]):{style}}{interval}"


def _paper(mark: PaperMark, at: _Context) -> str:
    lines = ["", line(["paper", "what it shows", "command", "published", "no record"]), line(["---"] * 5)]
    for name, same in groupby(at.tables, key=lambda table: table.name):
        at_scales = list(same)
        what, _, subject = at_scales[0].subject.partition(": ")
        if what.startswith(("Table", "Appendix")):
            command = f"`python scripts/reproduce.py table={name.removeprefix('table').lstrip('_')} scale=tiny`"
            there = [
                f"[{each.scale}]({at.folder}/{each.stem}.md){' (some runs)' if each.commands else ''}"
                for each in at_scales
                if each.num_records
            ]
            lacking = [each.scale for each in at_scales if not each.num_records]
            lines.append(line([what, escape(subject), command, ", ".join(there), ", ".join(lacking)]))
    for spec in map(load_figure_spec, figure_names()):
        what, _, subject = spec.title.partition(": ")
        if what.startswith("Figure"):
            drawn = (BENCHMARKS.parent / "figures" / f"{spec.name}.png").is_file()
            scale = ", ".join(dict.fromkeys(panel.scale for panel in spec.panels))
            link = f"[{scale or 'drawn'}]({at.folder.removesuffix('tables')}figures/{spec.name}.png)" if drawn else ""
            lines.append(line([what, escape(subject), "`make figures`", link, "paper" if scale or not drawn else ""]))
    return "\n".join([*lines, "", UNKNOWN, ""])


# Kind of mark -> the schema of what follows its colon, and the function that writes its text.
KINDS: dict[str, tuple[Any, Callable[..., str]]] = {
    "finding": (FindingMark, _finding),
    "difference": (DifferenceMark, _difference),
    "mean": (MeanMark, _mean),
    "answers": (AnswersMark, _answers),
    "control": (ControlMark, _control),
    "timing": (TimingSpec, _timing),
    "benchmark": (BenchmarkMark, _benchmark),
    "paper": (PaperMark, _paper),
}


def newest_day(page: str) -> int:
    """The offset at which the entries of earlier days begin; the end of a page without dated headings."""
    days = list(DAY.finditer(page))
    return next((each.start() for each in days if each[1] != days[0][1]), len(page))


def fill(page: str, path: Path, tables: Sequence[Table], folder: str) -> str:
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
        done += [live[at : match.end()], write(mark, _Context(tables, where, folder))]
        at = close
    return "".join([*done, live[at:], rest])
