"""The main page of a table, for the terminal."""

from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ntl.results.render.text import header, not_in_records, paper_text, seeds_text, short_legend, short_text
from ntl.results.table import Block, Table


def _block_parts(block: Block) -> list[RenderableType]:
    """The grid of a block's own columns, and the remarks below it."""
    # Text, not str: rich would read "[0.41, 0.45]" as markup.
    grid = RichTable(title=Text(f"{block.title}, n = {seeds_text(block.seeds_per_row)}"), title_justify="left")
    grid.add_column("")
    for column in block.shown:
        grid.add_column(Text(header(column)), justify="right")
    for group, row in block.grouped_rows():
        if group is not None:
            grid.add_row(Text(group, style="italic"))
        cells = []
        for cell in row.shown:
            text = Text(short_text(cell, row), style="bold" if cell.best else "")
            if cell.paper and not row.stand_in:
                text.append(f"\npaper {paper_text(cell)}", style="not bold dim")
            cells.append(text)
        label = Text(row.spec.label)
        if row.learnt is False:
            label.append(" (not learnt)", style="italic")
        if not row.spec.constant and len(set(block.seeds_per_row)) > 1:
            label.append(f" (n = {len(row.records)})", style="dim")
        grid.add_row(label, *cells)
    remarks = [short_legend(block), *block.warnings, *not_in_records(block)]
    missing = sum(len(row.missing) for row in block.rows)
    if missing:
        remarks.append(f"{missing} runs are missing; the file of details lists their commands.")
    return [grid, *(Text(each, style="dim") for each in remarks)]


def render(table: Table, console: Console | None = None) -> str:
    """Title and finding, then each block's own columns, in the width and the colours of the console."""
    console = console or Console()
    of = ", ".join([table.name, f"scale={table.scale}", *table.added])
    with console.capture() as capture:
        console.print(Text(f"{table.title} ({of})", style="bold"), Text(table.finding), sep="\n")
        for block in table.blocks:
            console.print(*_block_parts(block), sep="\n")
    return capture.get()
