"""Everything that the page for people leaves out: all columns with intervals, differences, notes, missing runs."""

from typing import TYPE_CHECKING

from ntl.results.markdown import added, escape, line
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


def _row(row: "TableRow") -> str:
    cells = []
    for cell in row.cells:
        text = value_text(cell, row)
        text = f"**{text}**" if cell.best else text
        paper = paper_line(cell)
        cells.append(f"{text}<br>paper {paper}" if paper else text)
    label = f"{escape(row.spec.label)}{' (not learnt)' if row.learnt is False else ''}"
    return line([label, "" if row.spec.constant else str(len(row.records)), *cells])


def _block(block: "Block") -> list[str]:
    headers = [escape(header(column)) for column in block.columns]
    lines = [
        f"## {escape(block.title)}",
        "",
        line(["", "n", *headers]),
        line(["---"] + ["---:"] * (len(headers) + 1)),
    ]
    group = ""
    for row in block.rows:
        if row.spec.group != group:
            group = row.spec.group
            lines.append(line([f"*{escape(group)}*" if group else "", *[""] * (len(headers) + 1)]))
        lines.append(_row(row))
    lines += ["", legend(block), "", *[f"- {escape(note)}" for note in (*block.warnings, *block.notes)]]
    if block.differences:
        lines += ["", f"Differences. {DIFFERENCE_LEGEND}", "", line(["", *headers])]
        lines.append(line(["---"] + ["---:"] * len(headers)))
        for difference in block.differences:
            cells = [(difference_text(cell), cell.bold) for cell in difference.cells]
            lines.append(line([escape(difference.name), *[f"**{text}**" if bold else text for text, bold in cells]]))
    if lost := not_in_records(block):
        lines += ["", "Not in the records (`python scripts/evaluate.py RUN` recomputes a run's metrics):", ""]
        lines += [f"- {escape(each)}" for each in lost]
    if commands := [row.command for row in block.rows if row.command]:
        lines += ["", "Runs that are missing:", "", "```sh", *commands, "```"]
    return [*lines, ""]


def render(table: "Table") -> str:
    """The whole table, its notes, differences and missing runs."""
    lines = [f"# {escape(table.title)}: details", "", f"`{table.name}` at `scale={table.scale}`{added(table)}.", ""]
    lines += [escape(table.finding), ""]
    if table.note:
        lines += [escape(" ".join(table.note.split())), ""]
    for block in table.blocks:
        lines += _block(block)
    return "\n".join(lines)
