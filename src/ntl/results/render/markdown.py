"""Markdown: a page with the finding and the paper's own columns."""

from textwrap import wrap
from typing import TYPE_CHECKING

from ntl.results.render.text import header, paper_text, seeds_text, short_legend, short_text
from ntl.results.spec import ColumnSpec
from ntl.results.table import Block, Row, Table

if TYPE_CHECKING:
    from rich.console import Console

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


def _row(row: Row, block: Block) -> str:
    label = [_wrapped(row.spec.label, LABEL_WIDTH)]
    if row.learnt is False:
        label += ["*no better than*", "*a constant*"]
    if not row.spec.constant and len(set(block.seeds_per_row)) > 1:
        label.append(f"n = {len(row.records)}")
    cells = []
    for column in block.shown:
        first, *rest = short_text(row, column).split("\n")
        lines = [f"**{first}**" if column.metric in row.best else first, *rest]
        if (paper := paper_text(row, column)) and not row.plan.stand_in:
            lines.append(f"paper {paper}")
        cells.append(BREAK.join(lines))
    return line([BREAK.join(label), *cells])


def _block(block: Block) -> list[str]:
    headers = [_header(column) for column in block.shown]
    lines = [f"## {escape(block.title)}, n = {seeds_text(block.seeds_per_row)}", ""]
    lines += [line(["", *headers]), line(["---"] + ["---:"] * len(headers))]
    for group, row in block.grouped_rows():
        if group is not None:
            title = BREAK.join(f"*{part}*" for part in _wrapped(group, LABEL_WIDTH).split(BREAK))
            lines.append(line([title, *[""] * len(headers)]))
        lines.append(_row(row, block))
    lines += ["", short_legend(block), ""]
    if block.warnings:
        lines += [*[f"- {escape(note)}" for note in block.warnings], ""]
    return lines


def to_markdown(table: Table) -> str:
    """The title with the models that ran, the finding, each block, and where the rest is."""
    added = f" with {', '.join(f'`{word}`' for word in table.added)}" if table.added else ""
    lines = [f"# {escape(table.title)}{added}", "", f"**{escape(table.finding)}**", ""]
    for block in table.blocks:
        lines += _block(block)
    if table.spec.note:
        lines += [escape(" ".join(table.spec.note.split())), ""]
    missing = sum(len(row.missing) for row in table.rows)
    lacks = f" Of its runs {missing} are missing; the CSV has their commands." if missing else ""
    reproduce = "python scripts/reproduce.py"
    command = " ".join([reproduce, f"table={table.name}", f"scale={table.scale}", *table.added])
    lines.append(
        f"Scale `{table.scale}`.{lacks} [CSV]({table.stem}.csv): intervals, differences, all columns, where the "
        f"records are from. [LaTeX]({table.stem}.tex). Made by `{command}`."
    )
    return "\n".join([*lines, ""])


def show(table: Table, console: "Console") -> None:
    """Print the page: its text, or on a terminal what it looks like."""
    from rich.markdown import Markdown  # here, since most tables are only written

    page = to_markdown(table)
    if console.is_terminal:
        console.print(Markdown(page.replace(BREAK, " ")))
    else:
        console.print(page, markup=False, highlight=False, soft_wrap=True)
