"""Markdown: the form people read in the repository."""

from typing import TYPE_CHECKING

from ntl.results.text import (
    DIFFERENCE_LEGEND,
    difference_text,
    header,
    legend,
    not_in_records,
    paper_line,
    value_text,
)

if TYPE_CHECKING:
    from ntl.results.table import Block, Table, TableRow


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text that Markdown prints as it stands, also inside a table."""
    for mark in ("\\", "|", "*", "_", "`", "<"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _row(row: "TableRow") -> str:
    cells = []
    for cell in row.cells:
        text = value_text(cell, row)
        text = f"**{text}**" if cell.best else text
        paper = paper_line(cell)
        cells.append(f"{text}<br>paper {paper}" if paper else text)
    return _line([escape(row.spec.label), "" if row.spec.constant else str(len(row.records)), *cells])


def _block(block: "Block") -> list[str]:
    headers = [escape(header(column)) for column in block.columns]
    lines = [
        f"### {escape(block.title)}",
        "",
        _line(["", "n", *headers]),
        _line(["---"] + ["---:"] * (len(headers) + 1)),
    ]
    group = ""
    for row in block.rows:
        if row.spec.group != group:
            group = row.spec.group
            lines.append(_line([f"*{escape(group)}*" if group else "", *[""] * (len(headers) + 1)]))
        lines.append(_row(row))
    lines += ["", legend(block), "", *[f"- {escape(note)}" for note in block.notes]]
    if block.differences:
        lines += ["", f"Differences. {DIFFERENCE_LEGEND}", "", _line(["", *headers])]
        lines.append(_line(["---"] + ["---:"] * len(headers)))
        for difference in block.differences:
            cells = [(difference_text(cell), cell.excludes_zero) for cell in difference.cells]
            label = f"{difference.row.label} minus {difference.against.label}"
            label = f"{difference.row.group}: {label}" if difference.row.group else label
            lines.append(_line([escape(label), *[f"**{text}**" if bold else text for text, bold in cells]]))
    if lost := not_in_records(block):
        lines += ["", "Not in the records (`python scripts/evaluate.py RUN` recomputes a run's metrics):", ""]
        lines += [f"- {escape(line)}" for line in lost]
    if commands := [row.command for row in block.rows if row.command]:
        lines += ["", "Runs that are missing:", "", "```sh", *commands, "```"]
    return [*lines, ""]


def _added(table: "Table") -> str:
    return f" with {', '.join(f'`{word}`' for word in table.added)}" if table.added else ""


def render(table: "Table") -> str:
    """The whole table, its notes, differences and missing runs."""
    lines = [f"## {escape(table.title)}", "", f"`{table.name}` at `scale={table.scale}`{_added(table)}.", ""]
    if table.note:
        lines += [escape(" ".join(table.note.split())), ""]
    for block in table.blocks:
        lines += _block(block)
    return "\n".join(lines)
