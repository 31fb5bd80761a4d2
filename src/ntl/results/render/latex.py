"""LaTeX with booktabs and graphicx: ``\\input`` it into a paper that loads these packages."""

import re
from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap

from ntl.results.render.text import LEGEND, constant_legend, header, paper_line, value_parts
from ntl.results.spec import ColumnSpec
from ntl.results.table import Block, Row, Table

MOST_LINES = 45  # of a page with the notes; longer tables have closer lines
HEADER_WIDTH = 14  # characters, about what a number and its spread take

_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "×": r"$\times$", "≥": r"$\geq$", "²": r"$^2$"}
    | {"λ": r"$\lambda$", "σ": r"$\sigma$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"}
)


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands, character by character, so that nothing is escaped twice."""
    return text.translate(_ESCAPES)


def _number(text: str) -> str:
    """A cell with minus signs in place of hyphens, in braces: LaTeX takes a "[" after a line's end for an option."""
    signed = re.sub(r"(?<![0-9a-z])-(?=[0-9])", "$-$", escape(text))
    return f"{{{signed}}}"


def _row(row: Row, columns: Sequence[ColumnSpec]) -> list[str]:
    values, intervals = [], []
    for column in columns:
        text, interval = value_parts(row, column)
        values.append(rf"\textbf{_number(text)}" if column.metric in row.best else _number(text))
        intervals.append(rf"\footnotesize{_number(interval)}" if interval else "")
    count = "" if row.spec.constant else str(len(row.records))
    mark = " (no better than a constant)" if row.learnt is False else ""
    lines = [rf"{escape(row.spec.label + mark)} & {count} & {' & '.join(values)} \\"]
    if any(intervals):
        lines.append(rf" & & {' & '.join(intervals)} \\")
    papers = [escape(paper_line(row, column)) for column in columns]
    if any(papers):
        lines.append(rf"\quad \textit{{paper}} & & {' & '.join(papers)} \\")
    return lines


def _header(column: ColumnSpec) -> str:
    lines = wrap(column.header, HEADER_WIDTH)
    lines[-1] = header(replace(column, header=lines[-1]))
    text = r" \\ ".join(map(escape, lines))
    return rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{text}\end{{tabular}}"


def _block(block: Block, table: Table, number: int) -> list[str]:
    several, columns, body = len(table.blocks) > 1, block.shown, list[str]()
    for group, row in block.grouped_rows():
        if group is not None:
            body += [r"\addlinespace"] if body else []
            body.append(rf"\multicolumn{{{len(columns) + 2}}}{{l}}{{\textit{{{escape(group)}}}}} \\")
        body += _row(row, columns)
    # LaTeX counts tables itself: "Table 11: Table 3: ..." would be unclear.
    title = re.sub("^Table ", "Paper, Table ", f"{table.title}: {block.title}" if several else table.title)
    scale = ", ".join([table.scale, *table.added])
    remarks = [LEGEND + constant_legend(block), *block.warnings]
    if number == 1:
        remarks[:1] = [table.finding, remarks[0], *filter(None, [" ".join(table.spec.note.split())])]
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(f'{title} (scale: {scale})')}}}",
        rf"\label{{tab:{table.name}-{table.scale}{f'-{number}' if several else ''}}}",
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


def to_latex(table: Table) -> str:
    """One ``table`` environment per block, with the columns of the page."""
    lines = ["% Needs \\usepackage{booktabs,graphicx}. Computed from run records: do not edit.", ""]
    return "\n".join(lines + [line for at, block in enumerate(table.blocks, 1) for line in _block(block, table, at)])
