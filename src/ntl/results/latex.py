"""LaTeX with booktabs and graphicx: ``\\input`` it into a paper that loads these packages."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING

from ntl.config.table import ColumnSpec
from ntl.results.text import LEGEND, header, paper_line, value_parts

if TYPE_CHECKING:
    from ntl.results.table import Block, Table, TableRow

MOST_COLUMNS = 6  # of numbers, in one table as wide as a page
MOST_LINES = 45  # with the notes, on one page; more are set closer
HEADER_WIDTH = 14  # characters, about what a number and its spread take

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "²": r"$^2$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
}


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands, character by character, so that nothing is escaped twice."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def _number(text: str) -> str:
    """A cell with minus signs in place of hyphens, in braces: LaTeX takes a "[" after a line's end for an option."""
    signed = re.sub(r"(?<![0-9a-z])-(?=[0-9])", "$-$", escape(text))
    return f"{{{signed}}}"


def _row(row: "TableRow", shown: slice) -> list[str]:
    parts = [value_parts(cell, row) for cell in row.cells[shown]]
    values = [
        rf"\textbf{_number(text)}" if cell.best else _number(text)
        for cell, (text, _) in zip(row.cells[shown], parts, strict=True)
    ]
    count = "" if row.spec.constant else str(len(row.records))
    lines = [rf"{escape(row.spec.label)} & {count} & {' & '.join(values)} \\"]
    intervals = [rf"\footnotesize{_number(interval)}" if interval else "" for _, interval in parts]
    if any(intervals):
        lines.append(rf" & & {' & '.join(intervals)} \\")
    papers = [escape(paper_line(cell)) for cell in row.cells[shown]]
    if any(papers):
        lines.append(rf"\quad \textit{{paper}} & & {' & '.join(papers)} \\")
    return lines


def _header(column: ColumnSpec) -> str:
    lines = wrap(column.header, HEADER_WIDTH)
    lines[-1] = header(replace(column, header=lines[-1]))
    text = r" \\ ".join(map(escape, lines))
    return rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{text}\end{{tabular}}"


def _panels(columns: Sequence[ColumnSpec]) -> list[slice]:
    """The columns of each ``table``: all where they fit on a page, else those of one split after the other."""
    if len(columns) <= MOST_COLUMNS:
        return [slice(0, len(columns))]
    starts = [n for n, c in enumerate(columns) if n == 0 or _split(c) != _split(columns[n - 1])]
    return [slice(*ends) for ends in pairwise([*starts, len(columns)])]


def _split(column: ColumnSpec) -> str:
    return column.metric.partition("/")[0]


def _panel(block: "Block", shown: slice, caption: str, label: str, remarks: Sequence[str]) -> list[str]:
    columns = block.columns[shown]
    body = []
    group = ""
    for row in block.rows:
        if row.spec.group != group:
            group = row.spec.group
            body += [r"\addlinespace"] if body else []
            body.append(rf"\multicolumn{{{len(columns) + 2}}}{{l}}{{\textit{{{escape(group)}}}}} \\")
        body += _row(row, shown)
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{{label}}}",
        r"\setlength{\tabcolsep}{4pt}",
        *([r"\renewcommand{\arraystretch}{0.85}"] if len(body) > MOST_LINES else []),
        # Only what is wider than the line is made smaller.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{lr{'r' * len(columns)}}}",
        r"\toprule",
        rf" & $n$ & {' & '.join(map(_header, columns))} \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\par\smallskip\raggedright\scriptsize",
        *[rf"{escape(remark)}\par" for remark in remarks],
        r"\end{table}",
        "",
    ]


def _block(block: "Block", table: "Table", number: int) -> list[str]:
    several = len(table.blocks) > 1
    # LaTeX counts tables itself: "Table 11: Table 3: ..." would say which is whose to nobody.
    title = re.sub("^Table ", "Paper, Table ", f"{table.title}: {block.title}" if several else table.title)
    label = f"tab:{table.name}-{table.scale}" + (f"-{number}" if several else "")
    notes = [" ".join(table.note.split())] if table.note and number == 1 else []
    lines = []
    panels = _panels(block.columns)
    for shown in panels:
        split = _split(block.columns[shown][0])
        part = f", {split}" if len(panels) > 1 else ""
        last = [LEGEND, *notes, *block.notes] if shown == panels[-1] else []
        caption = escape(f"{title}{part} (scale: {', '.join([table.scale, *table.added])})")
        lines += _panel(block, shown, caption, label + (f"-{split}" if part else ""), last)
    return lines


def render(table: "Table") -> str:
    """One ``table`` environment a block, or one a split where a block has more columns than a page can hold."""
    lines = ["% Needs \\usepackage{booktabs,graphicx}. Computed from run records: do not edit.", ""]
    for number, block in enumerate(table.blocks, start=1):
        lines += _block(block, table, number)
    return "\n".join(lines)
