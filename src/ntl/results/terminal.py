"""A table for the terminal."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ntl.results.text import difference_text, header, not_in_records, paper_line, value_text

if TYPE_CHECKING:
    from ntl.results.table import Block, Table


def _block(block: "Block") -> list[RenderableType]:
    # Text, not str: rich would read "[0.41, 0.45]" as markup.
    grid = RichTable(title=Text(block.title), title_justify="left")
    grid.add_column("", no_wrap=True)
    grid.add_column("n", justify="right")
    for column in block.columns:
        grid.add_column(Text(header(column)), justify="right")
    group = ""
    for row in block.rows:
        if row.spec.group != group:
            group = row.spec.group
            grid.add_row(Text(group, style="italic"))
        cells = []
        for cell in row.cells:
            text = Text(value_text(cell, row), style="bold" if cell.best else "")
            if paper := paper_line(cell):
                text.append(f"\npaper {paper}", style="not bold dim")
            cells.append(text)
        grid.add_row(Text(row.spec.label), "" if row.spec.constant else str(len(row.records)), *cells)
    parts: list[RenderableType] = [grid]
    if block.differences:
        change = RichTable(title=Text("Differences, paired by seed"), title_justify="left")
        change.add_column("")
        for column in block.columns:
            change.add_column(Text(header(column)), justify="right")
        for difference in block.differences:
            label = f"{difference.row.label} minus {difference.against.label}"
            label = f"{difference.row.group}: {label}" if difference.row.group else label
            texts = [Text(difference_text(c), style="bold" if c.excludes_zero else "") for c in difference.cells]
            change.add_row(Text(label), *texts)
        parts.append(change)
    parts += [Text(note, style="dim") for note in [*block.notes, *not_in_records(block)]]
    missing = sum(len(row.missing) for row in block.rows)
    if missing:
        parts.append(Text(f"{missing} runs are missing; the Markdown file lists their commands.", style="dim"))
    return parts


def render(table: "Table") -> RenderableType:
    """Everything but the commands of missing runs, which only fill a screen."""
    of = ", ".join([table.name, f"scale={table.scale}", *table.added])
    heading = Text(f"{table.title} ({of})", style="bold")
    return Group(heading, *[part for block in table.blocks for part in _block(block)])
