"""The page for people: the finding, then the paper's own columns, narrow enough to be read."""

from textwrap import wrap
from typing import TYPE_CHECKING

from ntl.config.table import ColumnSpec
from ntl.results.text import header, paper_text, seeds_text, short_legend, short_text

if TYPE_CHECKING:
    from ntl.results.table import Block, Table, TableRow

LABEL_WIDTH, HEADER_WIDTH = 18, 14  # characters, of a line
BREAK = "<br>"


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text that Markdown prints as it stands, also inside a table."""
    for mark in ("\\", "|", "*", "_", "`", "<"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _wrapped(text: str, width: int) -> str:
    # "λ = 0.3" stays in one line.
    lines = wrap(text.replace(" = ", "\0=\0"), width, break_on_hyphens=False)
    return BREAK.join(escape(each.replace("\0", " ")) for each in lines)


def _header(column: ColumnSpec) -> str:
    # The arrow stays with the last word.
    return _wrapped(header(column).replace(" ↑", "\u00a0↑").replace(" ↓", "\u00a0↓"), HEADER_WIDTH)


def _row(row: "TableRow", block: "Block") -> str:
    label = [_wrapped(row.spec.label, LABEL_WIDTH)]
    if row.learnt is False:
        label.append("*not learnt*")
    if not row.spec.constant and len(set(block.seeds_per_row)) > 1:
        label.append(f"n = {len(row.records)}")
    cells = []
    for cell in row.cells:
        if not cell.column.details:
            first, *rest = short_text(cell, row).split("\n")
            lines = [f"**{first}**" if cell.best else first, *rest]
            if cell.paper and not row.stand_in:
                lines.append(f"paper {paper_text(cell)}")
            cells.append(BREAK.join(lines))
    return line([BREAK.join(label), *cells])


def _block(block: "Block") -> list[str]:
    headers = [_header(column) for column in block.columns if not column.details]
    lines = [f"## {escape(block.title)}, {seeds_text(block.seeds_per_row)}", ""]
    lines += [line(["", *headers]), line(["---"] + ["---:"] * len(headers))]
    group = ""
    for row in block.rows:
        if row.spec.group != group:
            group = row.spec.group
            title = BREAK.join(f"*{part}*" for part in _wrapped(group, LABEL_WIDTH).split(BREAK))
            lines.append(line([title, *[""] * len(headers)]))
        lines.append(_row(row, block))
    lines += ["", short_legend(block), ""]
    if block.warnings:
        lines += [*[f"- {escape(note)}" for note in block.warnings], ""]
    return lines


def added(table: "Table") -> str:
    """The overrides of a command, for a heading."""
    return f" with {', '.join(f'`{word}`' for word in table.added)}" if table.added else ""


def render(table: "Table") -> str:
    """The title with the models that ran, the finding, each block, and where the rest is."""
    lines = [f"# {escape(table.title)}{added(table)}", "", f"**{escape(table.finding)}**", ""]
    for block in table.blocks:
        lines += _block(block)
    if table.note:
        lines += [escape(" ".join(table.note.split())), ""]
    missing = sum(len(row.missing) for block in table.blocks for row in block.rows)
    lacks = f" Of its runs {missing} are missing; the details list their commands." if missing else ""
    command = " ".join(["python scripts/reproduce.py", f"table={table.name}", f"scale={table.scale}", *table.added])
    lines.append(
        f"Scale `{table.scale}`.{lacks} [Details](details/{table.stem}.md): intervals, differences, all columns, where "
        f"the records are from. [CSV]({table.stem}.csv), [LaTeX]({table.stem}.tex). Made by `{command}`."
    )
    return "\n".join([*lines, ""])
