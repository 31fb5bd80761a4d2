"""A table as text and as files: Markdown, CSV and, on demand, LaTeX."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ntl.evaluation.metrics import RIDGE, Better
from ntl.results.effects import Summary
from ntl.results.match import Row
from ntl.results.spec import VERDICTS, ColumnSpec, SquareSpec, column_of
from ntl.results.table import Block, Table, rows_by_label
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import write_text

if TYPE_CHECKING:
    from rich.console import Console

# From here on an exponent: one diverged run must not widen a column.
LARGE = 1e7
HUGE = 1e4  # the same on the page, but for a format that groups digits: counts stay exact
ARROWS = {Better.higher: " ↑", Better.lower: " ↓", Better.neither: ""}
LABEL_WIDTH, HEADER_WIDTH = 18, 13  # characters, of a line; the latter is about what a number and its spread take
BREAK = "<br>"


def write_tables(tables: Sequence[Table], folder: Path | str, latex: bool = False) -> list[Path]:
    """``<stem>.md`` and ``.csv`` for each table with records, and ``.tex`` where asked for.

    A table without any has no files: what an earlier call left of it is removed. The same records give the same bytes.
    """
    written = []
    for table in tables:
        for suffix, render in RENDERERS.items():
            path = Path(folder) / f"{table.stem}.{suffix}"
            if table.num_records and (latex or suffix != "tex"):
                write_text(path, render(table))
                written.append(path)
            elif not table.num_records:
                with one_line_errors("remove", path):
                    path.unlink(missing_ok=True)
    return written


def seeds_text(counts: Sequence[int]) -> str:
    """``3 seeds``, or ``1 to 3 seeds`` where rows differ."""
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low if low == high else f'{low} to {high}'} seed{'s' * (high != 1)}"


def header(column: ColumnSpec) -> str:
    return column.header + ARROWS[column.better]


def number(value: float, spec: str) -> str:
    """A number by a format spec, without a minus sign before a zero; from ten million on with an exponent."""
    return format(value, ".2e" if abs(value) >= LARGE else f"z{spec}")


def plus_minus(summary: Summary, spec: str) -> str:
    """``mean ± sd``, as far as there are such."""
    return " ± ".join(number(value, spec) for value in (summary.mean, summary.sd) if value is not None)


def _compact(value: float) -> str:
    return re.sub(r"e\+?(-?)0*(\d)", r"e\1\2", f"{value:.0e}")  # 1e10, not 1e+10


def short_text(row: Row, column: ColumnSpec) -> str:
    """``mean ± sd`` with no more decimals than show two digits of the spread; from `HUGE` on a digit and an exponent.

    A second line gives the number of seeds where the metric is missing or undefined in some runs.
    """
    summary, spec = row.summary(column.metric), column.short or column.format
    huge = LARGE if "," in spec else HUGE
    if not row.scores(column.metric):
        return "-"
    if summary.mean is None:
        return "undefined"
    if summary.sd is None or summary.n < 3:
        text = ", ".join(_compact(v) if abs(v) >= huge else number(v, spec) for v in summary.values)
    elif max(abs(summary.mean), summary.sd) >= huge:
        text = f"{_compact(summary.mean)} ± {_compact(summary.sd)}"
    else:
        if (match := re.fullmatch(r"\.(\d+)([f%])", spec)) and summary.sd > 0:
            digits = 1 - math.floor(math.log10(100 * summary.sd if match[2] == "%" else summary.sd))
            spec = f".{max(0, min(int(match[1]), digits))}{match[2]}"
        text = plus_minus(summary, spec)
    whole = row.spec.constant or summary.n == len(row.records)
    return text if whole else f"{text}\n{summary.n} of {len(row.records)} seeds"


# ---- Markdown: a page with the finding and the paper's own columns


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text that Markdown prints as it stands, also inside a table."""
    return re.sub(r"[\\|*_`<]", r"\\\g<0>", text)


def _wrapped(text: str, width: int) -> list[str]:
    # "λ = 0.3" stays in one line, and an arrow with the last word.
    kept = text.replace(" = ", "\0=\0").replace(" ↑", "\u00a0↑").replace(" ↓", "\u00a0↓")
    return [escape(part.replace("\0", " ")) for part in wrap(kept, width, break_on_hyphens=False)]


def _page_block(block: Block) -> list[str]:
    columns, num_records = block.shown, block.seeds_per_row
    lines = [f"## {escape(block.spec.title)}, n = {seeds_text(num_records)}", ""]
    lines.append(line(["", *(BREAK.join(_wrapped(header(column), HEADER_WIDTH)) for column in columns)]))
    lines.append(line(["---"] + ["---:"] * len(columns)))
    group = ""
    for row in block.rows:
        if row.spec.group != group:
            group = row.spec.group
            title = BREAK.join(f"*{part}*" for part in _wrapped(group, LABEL_WIDTH))
            lines.append(line([title, *[""] * len(columns)]))
        label = _wrapped(row.spec.label, LABEL_WIDTH)
        label += ["*no better than*", "*a constant*"] if block.is_unlearnt(row) else []
        label += [f"n = {len(row.records)}"] if not row.spec.constant and len(set(num_records)) > 1 else []
        cells = [BREAK.join(label)]
        for column in columns:
            theirs = [number(value, column.paper_format) for value in row.spec.paper.get(column.metric, ())]
            paper = [f"paper {' ± '.join(theirs)}"] if theirs and not row.stand_in else []
            cells.append(BREAK.join([*short_text(row, column).split("\n"), *paper]))
        lines.append(line(cells))
    legend = "Mean ± standard deviation over seeds; for n = 2 both values."
    if any(map(block.is_unlearnt, block.rows)):
        legend += f" No better than a constant answer: in {block.endpoint.header}."
    return [*lines, "", legend, "", *(f"- {escape(text)}" for text in block.warnings), *[""] * bool(block.warnings)]


def to_markdown(table: Table) -> str:
    """The title with the models that ran, the finding, each block, and where the rest is."""
    added = f" with {', '.join(f'`{word}`' for word in table.added)}" if table.added else ""
    lines = [f"# {escape(table.title)}{added}", "", f"**{escape(table.finding)}**", ""]
    lines += [text for block in table.blocks for text in _page_block(block)]
    if table.spec.note:
        lines += [escape(" ".join(table.spec.note.split())), ""]
    missing = sum(len({*row.seeds} - row.records.keys()) for row in table.rows)
    lacks = f" Of its runs {missing} are missing." if missing else ""
    asked = [f"table={table.spec.file or table.spec.name}", f"scale={table.scale}", *table.added]
    csv = f"[CSV]({table.stem}.csv): intervals, differences, all columns, where the records are from."
    lines.append(f"Scale `{table.scale}`.{lacks} {csv} Made by `python scripts/reproduce.py {' '.join(asked)}`.")
    return "\n".join([*lines, ""])


def show(table: Table, console: "Console") -> None:
    """Print the page: its text, or on a terminal what it looks like."""
    from rich.markdown import Markdown  # here, since most tables are only written

    page = to_markdown(table)
    if console.is_terminal:
        console.print(Markdown(page.replace(BREAK, " ")))
    else:
        console.print(page, markup=False, highlight=False, soft_wrap=True)


# ---- a table of losses by readings

SQUARES_ARE = (
    "Mean errors over n seeds; APE is the absolute percentage error. The distribution is that of "
    "complete numbers, read by its mean or median, or that of each digit, read by its median."
)
READ_BY = {"expectation": "mean"}
LOSSES = ("CE", "NTL-WAS, λ = 0.3")  # rows of the squares, read in two ways


def squares(wanted: Sequence[SquareSpec], tables: Sequence[Table]) -> list[str]:
    """A line for each task: means over seeds of CE and NTL-WAS read in two ways, of a regression head and of ridge."""
    ways = (
        "distribution read by",
        *(f"{loss}, {way}" for loss in ("CE", "NTL-WAS") for way in ("greedy", "distribution")),
    )
    lines = [line(["task", "n", *ways, "regression head", "ridge"]), line(["---", "---:", "---", *["---:"] * 6])]
    for spec in wanted:
        rows, (greedy, read) = square_of(spec, tables)
        cells = [*product(LOSSES, (greedy, read)), ("regression head, MSE", greedy), (RIDGE, greedy)]
        means = [rows[label].summary(column.metric).mean if label in rows else None for label, column in cells]
        n, by = len(rows[LOSSES[0]].records) if LOSSES[0] in rows else 0, READ_BY.get(spec.reading, spec.reading)
        counts = [len(rows[label].records) if label in rows and label != RIDGE else n for label, _ in cells]
        more = [f" (n = {count})" * (count != n) for count in counts]  # a row may have fewer seeds
        shown = ["" if mean is None else f"{mean:#.3g}{fewer}" for mean, fewer in zip(means, more, strict=True)]
        lines.append(line([escape(spec.task), str(n), by.replace("_", " "), *shown]))
    return lines


def square_of(spec: SquareSpec, tables: Sequence[Table]) -> tuple[dict[str, Row], tuple[ColumnSpec, ColumnSpec]]:
    """The rows of a task by their labels, ridge's by its constant, and the column of each of the two readings."""
    where = f"{VERDICTS}: squares: {spec.task}"
    of_table = [table for table in tables if (table.spec.name, table.scale) == (spec.table, spec.scale)]
    blocks = [block for table in of_table for block in table.blocks if block.spec is table.spec.blocks[spec.block]]
    if not blocks:
        raise UserError(f"{where}: there is no such table, scale and block")
    (rows,) = rows_by_label([spec.group], blocks[0].spec, spec.scale, blocks[0].rows)
    rows |= {row.spec.constant: row for row in blocks[0].rows if row.spec.constant}
    greedy, read = (column_of(blocks[0].spec, spec.metric + at, where) for at in ("", f"@{spec.reading}"))
    return rows, (greedy, read)


# ---- CSV, one line per cell, difference or note, for further computation; LaTeX of the page's cells

FIELDS = (
    *("table", "scale", "block", "kind", "group", "row", "against", "metric", "n", "undefined", "mean", "sd", "low"),
    *("high", "paper_mean", "paper_sd", "measure", "primary", "seeds", "values", "records", "text"),
)


def to_cells(table: Table) -> list[dict[str, Any]]:
    """Every cell and difference as a flat dict in JSON's types, then the notes; None where there is no number.

    The key ``added`` is there only where a command added overrides to all runs.
    """
    cells = list[dict[str, Any]]()
    for block in table.blocks:
        for row, column in product(block.rows, block.spec.columns):
            summary, seeds = row.summary(column.metric), [] if row.spec.constant else [*row.scores(column.metric)]
            about = {"kind": "cell", "group": row.spec.group, "row": row.spec.label, "metric": column.metric}
            about |= {"n": summary.n, **asdict(summary), "seeds": seeds}
            about |= zip(("paper_mean", "paper_sd"), row.spec.paper.get(column.metric, ()), strict=False)
            records = [record.id for record in row.records.values()]
            cells.append({"block": block.spec.title, **about, "records": records})
        cells += [{"block": block.spec.title, **entry} for entry in block.lines]
    cells.append({"kind": "finding", "text": table.finding})
    about = {**dict.fromkeys(FIELDS), "table": table.spec.name, "scale": table.scale}
    more = {"added": list(table.added)} if table.added else {}
    return [{**about, **cell, **more} for cell in cells]


def to_csv(table: Table) -> str:
    """The header is FIELDS, and "added" for overrides; lists are joined by semicolons, an empty field is no number."""
    import pandas as pd

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return ";".join(map(text, value))
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return pd.DataFrame(to_cells(table), dtype=object).map(text).to_csv(index=False, lineterminator="\n")


def to_latex(table: Table) -> str:
    """A ``tabular`` of booktabs for each block, with the cells of the page."""
    import pandas as pd

    parts = ["% Needs \\usepackage{booktabs}. Computed from run records: do not edit."]
    for block in table.blocks:
        cells = {header(column): [short_text(row, column) for row in block.rows] for column in block.shown}
        frame = pd.DataFrame(cells, index=[row.name for row in block.rows]).replace("\n", ", ", regex=True)
        style: Any = (
            frame.style.format(escape="latex").format_index(escape="latex").format_index(escape="latex", axis=1)
        )
        title = f"{table.title}: {block.spec.title} (scale: {', '.join([table.scale, *table.added])})"
        caption = re.sub("[&%$#_{}]", r"\\\g<0>", title)
        parts.append(style.to_latex(hrules=True, position_float="centering", caption=caption))
    signs = {"±": r"$\pm$", "×": r"$\times$", "²": "$^2$", "λ": r"$\lambda$", "σ": r"$\sigma$", "→": r"$\to$"}
    return "\n".join(parts).translate(str.maketrans(signs | {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}))


RENDERERS = {"md": to_markdown, "csv": to_csv, "tex": to_latex}
