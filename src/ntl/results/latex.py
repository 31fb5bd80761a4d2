"""LaTeX with booktabs: ``\\input`` it into a paper that loads that package."""

from typing import TYPE_CHECKING

from ntl.results.text import header, paper_line, value_text

if TYPE_CHECKING:
    from ntl.results.table import Block, Table, TableRow

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


def _row(row: "TableRow") -> list[str]:
    values = []
    for cell in row.cells:
        text = escape(value_text(cell, row))
        # Braces keep a "[" at the start of a cell from being read as the optional argument of "\\".
        values.append(rf"\textbf{{{text}}}" if cell.best else f"{{{text}}}")
    count = "" if row.spec.constant else str(len(row.records))
    lines = [rf"{escape(row.spec.label)} & {count} & {' & '.join(values)} \\"]
    papers = [escape(paper_line(cell)) for cell in row.cells]
    if any(papers):
        lines.append(rf"\quad \textit{{paper}} & & {' & '.join(papers)} \\")
    return lines


def _block(block: "Block", table: "Table", number: int) -> list[str]:
    headers = " & ".join(escape(header(column)) for column in block.columns)
    caption = escape(f"{table.title}: {block.title}" if len(table.blocks) > 1 else table.title)
    label = f"tab:{table.name}-{table.scale}" + (f"-{number}" if len(table.blocks) > 1 else "")
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption} (scale: {escape(table.scale)})}}",
        rf"\label{{{label}}}",
        rf"\begin{{tabular}}{{lr{'r' * len(block.columns)}}}",
        r"\toprule",
        rf" & $n$ & {headers} \\",
        r"\midrule",
    ]
    group = ""
    for row in block.rows:
        if row.spec.group != group:
            group = row.spec.group
            lines.append(rf"\multicolumn{{{len(block.columns) + 2}}}{{l}}{{\textit{{{escape(group)}}}}} \\")
        lines += _row(row)
    lines += [r"\bottomrule", r"\end{tabular}"]
    remarks = [" ".join(table.note.split())] if table.note and number == 1 else []
    lines += [rf"\par\footnotesize {escape(note)}" for note in [*remarks, *block.notes]]
    return [*lines, r"\end{table}", ""]


def render(table: "Table") -> str:
    """One ``table`` environment a block."""
    lines = ["% Needs \\usepackage{booktabs}. Computed from run records: do not edit.", ""]
    for number, block in enumerate(table.blocks, start=1):
        lines += _block(block, table, number)
    return "\n".join(lines)
