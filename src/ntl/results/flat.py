"""CSV, one line a cell, for whoever wants to compute on."""

import csv
import io
from typing import TYPE_CHECKING, Any

from ntl.results.text import paper_difference

if TYPE_CHECKING:
    from ntl.results.table import Table

FIELDS = (
    "table",
    "scale",
    "block",
    "group",
    "row",
    "metric",
    "n",
    "undefined",
    "mean",
    "sd",
    "low",
    "high",
    "best",
    "paper_mean",
    "paper_sd",
    "minus_paper",
    "seeds",
    "values",
    "records",
    "command",
)


def cells(table: "Table") -> list[dict[str, Any]]:
    """Every cell: None where there is no number; ``command`` makes the runs that the cell's row still lacks.

    ``added``, only where a command added overrides to all runs, are these.
    """
    more = {"added": list(table.added)} if table.added else {}
    found = []
    for block in table.blocks:
        for row in block.rows:
            for cell in row.cells:
                summary = cell.summary
                names = [table.name, table.scale, block.title, row.spec.group, row.spec.label, cell.column.metric]
                numbers = (
                    [summary.n, summary.undefined, summary.mean, summary.sd, summary.low, summary.high]
                    if summary
                    else [0, 0, None, None, None, None]
                )
                paper_sd = cell.paper[1] if len(cell.paper) > 1 else None
                papers = [cell.paper[0] if cell.paper else None, paper_sd, paper_difference(cell)]
                seeds = [] if row.spec.constant else list(cell.seeds)
                origin = [record.id for record in row.records.values()]
                rest = [seeds, list(summary.values) if summary else [], origin, row.command]
                found.append(dict(zip(FIELDS, [*names, *numbers, cell.best, *papers, *rest], strict=True)) | more)
    return found


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ";".join(map(_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def render(table: "Table") -> str:
    """The header is FIELDS, and "added" for overrides; lists are joined by semicolons, an empty field is no number."""
    names = [*FIELDS, "added"] if table.added else FIELDS
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_text(cell[name]) for name in names] for cell in cells(table))
    return out.getvalue()
