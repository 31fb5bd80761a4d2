"""CSV, one line per cell, difference or note, for further computation."""

from typing import Any

from ntl.results.effects import Summary
from ntl.results.render.text import paper_difference
from ntl.results.spec import ColumnSpec
from ntl.results.table import Difference, Row, Table

NUMBERS = ("n", "undefined", "mean", "sd", "low", "high")
FIELDS = (
    *("table", "scale", "block", "kind", "group", "row", "against", "metric", *NUMBERS, "best", "learnt"),
    *("paper_mean", "paper_sd", "minus_paper", "measure", "better", "primary", "seeds", "values", "records"),
    *("command", "text"),
)


def _numbers(summary: Summary) -> dict[str, Any]:
    return {**{name: getattr(summary, name) for name in NUMBERS}, "values": list(summary.values)}


def _cell(row: Row, column: ColumnSpec) -> dict[str, Any]:
    metric = column.metric
    paper_mean, paper_sd, *_ = (*row.spec.paper.get(metric, ()), None, None)
    return {
        **{"kind": "cell", "group": row.spec.group, "row": row.spec.label, "metric": metric},
        **_numbers(row.summary(column)),
        **{"best": metric in row.best, "learnt": row.learnt, "paper_mean": paper_mean, "paper_sd": paper_sd},
        "minus_paper": paper_difference(row, column),
        "seeds": [] if row.spec.constant else list(row.values[metric]),
        "records": [record.id for record in row.records.values()],
        "command": row.command,
    }


def _difference(each: Difference) -> dict[str, Any]:
    """With one common seed, low and high are the interval of the bootstrap over examples."""
    return {
        **{"kind": "difference", "group": each.row.group, "row": each.row.label, "against": each.against.label},
        "metric": each.effect.column.metric,
        **_numbers(each.effect.summary),
        **(dict(zip(("low", "high"), each.examples, strict=True)) if each.examples else {}),
        "measure": "log ratio" if each.effect.ratio else "difference",
        **{"better": each.effect.better, "primary": each.primary, "text": each.effect.text},
    }


def cells(table: Table) -> list[dict[str, Any]]:
    """Every cell and difference as a flat dict in JSON's types, then the notes; None where there is no number.

    ``command`` trains the missing runs of the cell's row. The key ``added`` is there only where a command added
    overrides to all runs.
    """
    more = {"added": list(table.added)} if table.added else {}
    found: list[dict[str, Any]] = []
    for block in table.blocks:
        parts = [_cell(row, column) for row in block.rows for column in block.columns]
        parts += map(_difference, block.differences)
        parts += [{"kind": "note", "text": text} for text in (*block.warnings, *block.notes)]
        found += [{"block": block.title, **part} for part in parts]
    found.append({"kind": "finding", "text": table.finding})
    return [{**dict.fromkeys(FIELDS), "table": table.name, "scale": table.scale, **part, **more} for part in found]


def to_csv(table: Table) -> str:
    """The header is FIELDS, and "added" for overrides; lists are joined by semicolons, an empty field is no number."""
    import pandas as pd

    return pd.DataFrame(cells(table), dtype=object).map(_text).to_csv(index=False, lineterminator="\n")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ";".join(map(_text, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
