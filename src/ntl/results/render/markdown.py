"""Markdown: a page with the finding and the paper's own columns, and a page of details with everything else."""

from textwrap import wrap
from typing import TYPE_CHECKING

from ntl.results.render.text import (
    DIFFERENCE_LEGEND,
    difference_text,
    header,
    legend,
    not_in_records,
    paper_line,
    paper_text,
    seeds_text,
    short_legend,
    short_text,
    value_text,
)
from ntl.results.spec import ColumnSpec
from ntl.results.table import Block, Table, TableRow

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


def _row(row: TableRow, block: Block) -> str:
    label = [_wrapped(row.spec.label, LABEL_WIDTH)]
    if row.learnt is False:
        label.append("*not learnt*")
    if not row.spec.constant and len(set(block.seeds_per_row)) > 1:
        label.append(f"n = {len(row.records)}")
    cells = []
    for cell in row.shown:
        first, *rest = short_text(cell, row).split("\n")
        lines = [f"**{first}**" if cell.best else first, *rest]
        if cell.paper and not row.stand_in:
            lines.append(f"paper {paper_text(cell)}")
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


def added(table: Table) -> str:
    """The overrides that a command added, for a heading."""
    return f" with {', '.join(f'`{word}`' for word in table.added)}" if table.added else ""


def render(table: Table) -> str:
    """The title with the models that ran, the finding, each block, and where the rest is."""
    lines = [f"# {escape(table.title)}{added(table)}", "", f"**{escape(table.finding)}**", ""]
    for block in table.blocks:
        lines += _block(block)
    if table.note:
        lines += [escape(" ".join(table.note.split())), ""]
    missing = sum(len(row.missing) for block in table.blocks for row in block.rows)
    lacks = f" Of its runs {missing} are missing; the details list their commands." if missing else ""
    reproduce = "python scripts/reproduce.py"
    command = " ".join([reproduce, f"table={table.name}", f"scale={table.scale}", *table.added])
    lines.append(
        f"Scale `{table.scale}`.{lacks} [Details](details/{table.stem}.md): intervals, differences, all columns, where "
        f"the records are from. [CSV]({table.stem}.csv), [LaTeX]({table.stem}.tex). Made by `{command}`."
    )
    return "\n".join([*lines, ""])


def show(table: Table, console: "Console") -> None:
    """Print the page: its text, or on a terminal what it looks like."""
    from rich.markdown import Markdown  # here, since most tables are only written

    page = render(table)
    if console.is_terminal:
        console.print(Markdown(page.replace(BREAK, " ")))
    else:
        console.print(page, markup=False, highlight=False, soft_wrap=True)


def _details_row(row: TableRow) -> str:
    cells = []
    for cell in row.cells:
        text = value_text(cell, row)
        text = f"**{text}**" if cell.best else text
        paper = paper_line(cell)
        cells.append(f"{text}<br>paper {paper}" if paper else text)
    label = f"{escape(row.spec.label)}{' (not learnt)' if row.learnt is False else ''}"
    return line([label, "" if row.spec.constant else str(len(row.records)), *cells])


def _details_block(block: Block) -> list[str]:
    headers = [escape(header(column)) for column in block.columns]
    ruler = line(["---"] + ["---:"] * (len(headers) + 1))
    lines = [f"## {escape(block.title)}", "", line(["", "n", *headers]), ruler]
    for group, row in block.grouped_rows():
        if group is not None:
            lines.append(line([f"*{escape(group)}*" if group else "", *[""] * (len(headers) + 1)]))
        lines.append(_details_row(row))
    lines += ["", legend(block), "", *[f"- {escape(note)}" for note in (*block.warnings, *block.notes)]]
    if block.differences:
        lines += ["", f"Differences. {DIFFERENCE_LEGEND}", "", line(["", *headers])]
        lines.append(line(["---"] + ["---:"] * len(headers)))
        for each in block.differences:
            cells = [f"**{difference_text(cell)}**" if cell.bold else difference_text(cell) for cell in each.cells]
            lines.append(line([escape(each.name), *cells]))
    if lost := not_in_records(block):
        lines += ["", "Not in the records:", ""]
        lines += [f"- {escape(each)}" for each in lost]
    if commands := [row.command for row in block.rows if row.command]:
        lines += ["", "Runs that are missing:", "", "```sh", *commands, "```"]
    return [*lines, ""]


def render_details(table: Table) -> str:
    """Everything that ``render`` leaves out: all columns with intervals, differences, notes, missing runs."""
    lines = [f"# {escape(table.title)}: details", "", f"`{table.name}` at `scale={table.scale}`{added(table)}.", ""]
    lines += [escape(table.finding), ""]
    if table.note:
        lines += [escape(" ".join(table.note.split())), ""]
    for block in table.blocks:
        lines += _details_block(block)
    return "\n".join(lines)
