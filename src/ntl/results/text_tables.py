"""Tables in texts that are written from files: the lines of a benchmark, and where each part of the paper is found."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ntl.results.figures.spec import figure_names, load_figure_spec
from ntl.results.load import read_rows
from ntl.results.publish import UNKNOWN
from ntl.results.render.markdown import escape, line
from ntl.results.table import Table
from ntl.system.errors import UserError, one_line_errors

RESULTS = Path(__file__).resolve().parents[3] / "results"


def read_lines(path: Path, where: str) -> list[dict[str, str]]:
    """The lines of a CSV file, less its comments, or the entries of a JSON list, whose inner keys are joined by dots.

    UserError, which begins with ``where``, if there is no such file.
    """
    if not path.is_file():
        raise UserError(f"{where}: there is no {path}")
    if path.suffix != ".json":
        return read_rows(path)
    with one_line_errors("read", path):
        return [dict(_flat(entry)) for entry in json.loads(path.read_text(encoding="utf-8"))]


def _flat(entry: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in entry.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", str(value)


def benchmark_table(
    lines: Sequence[Mapping[str, str]], columns: Mapping[str, str], wanted: Mapping[str, Any], where: str
) -> str:
    """A Markdown table of the lines that have what is ``wanted``: a value, or one of a list of values, of a field.

    ``columns`` has the field of each header, and after a colon how its number is written: ``ratio:.2f``. A field with
    ``<field>_low`` and ``<field>_high`` gets them in brackets. UserError, which begins with ``where``: a field that no
    line has, or no such line.
    """
    fields = {header: field.partition(":")[::2] for header, field in columns.items()}
    for field in (*wanted, *(name for name, _ in fields.values())):
        if field not in (lines[0] if lines else {}):
            raise UserError(f"{where}: there is no field {field!r}: choose from {', '.join(lines[0] if lines else ())}")
    chosen = [each for each in lines if all(each[field] in _values(value) for field, value in wanted.items())]
    if not chosen:
        raise UserError(f"{where}: where: no line has {', '.join(f'{field}={wanted[field]}' for field in wanted)}")
    rows = [[_cell(each, field, style) for field, style in fields.values()] for each in chosen]
    ruler = ["---:" if style else "---" for _, style in fields.values()]
    return "\n".join(map(line, [list(fields), ruler, *rows]))


def _values(wanted: Any) -> list[str]:
    return [str(value) for value in (wanted if isinstance(wanted, list) else [wanted])]


def _cell(row: Mapping[str, str], field: str, style: str) -> str:
    if not style or not row[field]:
        return escape(row[field])
    low, high = row.get(f"{field}_low"), row.get(f"{field}_high")
    interval = f" [{float(low):{style}}, {float(high):{style}}]" if low and high else ""
    return f"{float(row[field]):{style}}{interval}"


def paper_table(tables: Sequence[Table], folder: str) -> str:
    """A line for each table and figure of the paper: its command, what is published, and the scales without a record.

    A scale of which some runs lack a record says so. ``folder`` is that of the tables as seen from the page.
    """
    lines = [
        line(["paper", "what it shows", "command", "published", "no record"]),
        line(["---"] * 5),
    ]
    for name, same in groupby(tables, key=lambda table: table.name):
        at_scales = list(same)
        what, _, subject = at_scales[0].subject.partition(": ")
        if what.startswith(("Table", "Appendix")):
            command = f"`python scripts/reproduce.py table={name.removeprefix('table').lstrip('_')} scale=tiny`"
            there = [
                f"[{each.scale}]({folder}/{each.stem}.md){' (some runs)' if each.commands else ''}"
                for each in at_scales
                if each.num_records
            ]
            lacking = [each.scale for each in at_scales if not each.num_records]
            lines.append(line([what, escape(subject), command, ", ".join(there), ", ".join(lacking)]))
    for spec in map(load_figure_spec, figure_names()):
        what, _, subject = spec.title.partition(": ")
        if what.startswith("Figure"):
            drawn = (RESULTS / "figures" / f"{spec.name}.png").is_file()
            scale = ", ".join(dict.fromkeys(panel.scale for panel in spec.panels))
            link = f"[{scale or 'drawn'}]({folder.removesuffix('tables')}figures/{spec.name}.png)" if drawn else ""
            lines.append(line([what, escape(subject), "`make figures`", link, "paper" if scale or not drawn else ""]))
    return "\n".join([*lines, "", UNKNOWN])
