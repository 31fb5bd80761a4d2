"""A table as text and as files: Markdown, LaTeX and CSV, with the same cells and legends."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ntl.evaluation.metrics import Better
from ntl.results.effects import Effect, Summary
from ntl.results.spec import ColumnSpec
from ntl.results.table import Block, Difference, Row, Table
from ntl.system.errors import one_line_errors
from ntl.system.files import write_text

if TYPE_CHECKING:
    from rich.console import Console

BOLD_LEGEND = (
    "Bold: the best row, where its gain over the second best, paired by seed, has an interval without 0 that is not "
    "within 5%; never one that is no better than a constant answer."
)
LEGEND = f"Mean ± standard deviation over n seeds [95% t interval]; for n = 2 both values. {BOLD_LEGEND}"
# From here on an exponent: one diverged run must not widen a column.
LARGE = 1e7
HUGE = 1e4  # the same on the page, but for a format that groups digits: counts stay exact
ARROWS = {Better.higher: " ↑", Better.lower: " ↓", Better.neither: ""}
LABEL_WIDTH, HEADER_WIDTH = 18, 14  # characters, of a line; the latter is about what a number and its spread take


def write_tables(tables: Sequence[Table], folder: Path | str) -> list[Path]:
    """``<stem>.md``, ``.tex`` and ``.csv`` for each table with records.

    A table without any has no files: what an earlier call left of it is removed. The same records give the same bytes.
    """
    written = []
    for table in tables:
        for suffix, render in RENDERERS.items():
            path = Path(folder) / f"{table.stem}.{suffix}"
            if table.num_records:
                write_text(path, render(table))
                written.append(path)
            else:
                with one_line_errors("remove", path):
                    path.unlink(missing_ok=True)
    return written


# ---- cells and legends


def constant_legend(block: Block) -> str:
    """Where the mark of a row that learns nothing is decided; empty where no row has it."""
    if all(row.learnt is not False for row in block.rows):
        return ""
    return f" No better than a constant answer: in {block.endpoint.header}."


def seeds_text(counts: Sequence[int]) -> str:
    """``3 seeds``, or ``1 to 3 seeds`` where rows differ."""
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low if low == high else f'{low} to {high}'} seed{'s' * (high != 1)}"


def header(column: ColumnSpec) -> str:
    return column.header + ARROWS[column.better]


def number(value: float, spec: str, sign: str = "") -> str:
    """A number by a format spec, without a minus sign before a zero; from ten million on with an exponent."""
    return format(value, f"{sign}.2e" if abs(value) >= LARGE else f"{sign}z{spec}")


def _compact(value: float) -> str:
    # 1e10, not 1e+10
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _coarser(spec: str, spread: float) -> str:
    """The format with no more decimals than it takes to show two digits of a spread."""
    found = re.fullmatch(r"\.(\d+)([f%])", spec)
    if not found or spread <= 0:
        return spec
    digits = 1 - math.floor(math.log10(100 * spread if found[2] == "%" else spread))
    return f".{max(0, min(int(found[1]), digits))}{found[2]}"


def short_text(row: Row, column: ColumnSpec) -> str:
    """``mean ± sd`` with no more digits than the spread has; from `HUGE` on one digit and an exponent.

    A second line gives the number of seeds where the metric is missing or undefined in some runs.
    """
    summary, spec = row.summary(column), column.short or column.format
    huge = LARGE if "," in spec else HUGE
    if not row.values[column.metric]:
        return "-"
    if summary.mean is None:
        return "undefined"
    if summary.sd is None or summary.n < 3:
        text = ", ".join(_compact(v) if abs(v) >= huge else number(v, spec) for v in summary.values)
    elif max(abs(summary.mean), summary.sd) >= huge:
        text = f"{_compact(summary.mean)} ± {_compact(summary.sd)}"
    else:
        fitting = _coarser(spec, summary.sd)
        text = f"{number(summary.mean, fitting)} ± {number(summary.sd, fitting)}"
    whole = row.spec.constant or summary.n == len(row.records)
    return text if whole else f"{text}\n{summary.n} of {len(row.records)} seeds"


def value_parts(row: Row, column: ColumnSpec) -> tuple[str, str]:
    """The mean with its spread, and the interval, empty where there is none; with n where some runs lack the metric.

    ``-`` without a record, ``undefined`` for a metric that has no value; for one or two seeds the values themselves.
    """
    summary, spec = row.summary(column), column.format
    if not row.values[column.metric]:
        return "-", ""
    if summary.mean is None:
        return "undefined", ""
    if summary.sd is None or summary.low is None or summary.high is None:
        text, interval = ", ".join(number(value, spec) for value in summary.values), ""
    else:
        text = f"{number(summary.mean, spec)} ± {number(summary.sd, spec)}"
        interval = f"[{number(summary.low, spec)}, {number(summary.high, spec)}]"
    if summary.undefined:
        text = f"undefined in {summary.undefined} of {summary.n + summary.undefined}, else {text}"
    if not row.spec.constant and (n := len(row.values[column.metric])) != len(row.records):
        interval = f"{interval} (n={n})".strip()
    return text, interval


def paper_text(row: Row, column: ColumnSpec) -> str:
    """The paper's number as printed there, empty where it prints none."""
    return " ± ".join(number(value, column.paper_format) for value in row.spec.paper.get(column.metric, ()))


def paper_difference(row: Row, column: ColumnSpec) -> float | None:
    """Our mean minus the paper's; None without either."""
    mean, paper = row.summary(column).mean, row.spec.paper.get(column.metric)
    return mean - paper[0] if paper and mean is not None else None


# ---- Markdown: a page with the finding and the paper's own columns

BREAK = "<br>"


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text that Markdown prints as it stands, also inside a table."""
    for mark in ("\\", "|", "*", "_", "`", "<"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _wrapped(text: str, width: int) -> str:
    # "λ = 0.3" stays in one line, and an arrow with the last word.
    kept = text.replace(" = ", "\0=\0").replace(" ↑", "\u00a0↑").replace(" ↓", "\u00a0↓")
    return BREAK.join(escape(each.replace("\0", " ")) for each in wrap(kept, width, break_on_hyphens=False))


def _page_row(row: Row, block: Block) -> str:
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


def _page_block(block: Block) -> list[str]:
    headers = [_wrapped(header(column), HEADER_WIDTH) for column in block.shown]
    lines = [f"## {escape(block.spec.title)}, n = {seeds_text(block.seeds_per_row)}", ""]
    lines += [line(["", *headers]), line(["---"] + ["---:"] * len(headers))]
    for group, row in block.grouped_rows():
        if group is not None:
            title = BREAK.join(f"*{part}*" for part in _wrapped(group, LABEL_WIDTH).split(BREAK))
            lines.append(line([title, *[""] * len(headers)]))
        lines.append(_page_row(row, block))
    is_best = any(column.metric in row.best for row in block.rows for column in block.shown)
    bold = BOLD_LEGEND if is_best else "No row is clearly the best in any column."
    legend = f"Mean ± standard deviation over seeds; for n = 2 both values. {bold}{constant_legend(block)}"
    lines += ["", legend, ""]
    if remarks := [*block.of_families, *block.warnings]:
        lines += [*[f"- {escape(note)}" for note in remarks], ""]
    return lines


def to_markdown(table: Table) -> str:
    """The title with the models that ran, the finding, each block, and where the rest is."""
    added = f" with {', '.join(f'`{word}`' for word in table.added)}" if table.added else ""
    lines = [f"# {escape(table.title)}{added}", "", f"**{escape(table.finding)}**", ""]
    for block in table.blocks:
        lines += _page_block(block)
    if table.spec.note:
        lines += [escape(" ".join(table.spec.note.split())), ""]
    missing = sum(len(row.missing) for row in table.rows)
    lacks = f" Of its runs {missing} are missing; the CSV has their commands." if missing else ""
    command = ["python scripts/reproduce.py", f"table={table.name}", f"scale={table.scale}", *table.added]
    lines.append(
        f"Scale `{table.scale}`.{lacks} [CSV]({table.stem}.csv): intervals, differences, all columns, where the "
        f"records are from. [LaTeX]({table.stem}.tex). Made by `{' '.join(command)}`."
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


# ---- LaTeX with booktabs and graphicx: ``\input`` it into a paper that loads these packages

MOST_LINES = 45  # of a page with the notes; longer tables have closer lines
_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "×": r"$\times$", "≥": r"$\geq$", "²": r"$^2$"}
    | {"λ": r"$\lambda$", "σ": r"$\sigma$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"}
)


def _latex(text: str) -> str:
    """Text that LaTeX prints as it stands, character by character, so that nothing is escaped twice."""
    return text.translate(_ESCAPES)


def _latex_number(text: str) -> str:
    """A cell with minus signs in place of hyphens, in braces: LaTeX takes a "[" after a line's end for an option."""
    signed = re.sub(r"(?<![0-9a-z])-(?=[0-9])", "$-$", _latex(text))
    return f"{{{signed}}}"


def _latex_row(row: Row, columns: Sequence[ColumnSpec]) -> list[str]:
    values, intervals, papers = [], [], []
    for column in columns:
        text, interval = value_parts(row, column)
        values.append(rf"\textbf{_latex_number(text)}" if column.metric in row.best else _latex_number(text))
        intervals.append(rf"\footnotesize{_latex_number(interval)}" if interval else "")
        away = paper_difference(row, column)
        ours_minus = "" if away is None else f" ({number(away, column.format, '+')})"
        papers.append(_latex(paper_text(row, column) + ours_minus))
    count = "" if row.spec.constant else str(len(row.records))
    mark = " (no better than a constant)" if row.learnt is False else ""
    lines = [rf"{_latex(row.spec.label + mark)} & {count} & {' & '.join(values)} \\"]
    if any(intervals):
        lines.append(rf" & & {' & '.join(intervals)} \\")
    if any(papers):
        lines.append(rf"\quad \textit{{paper}} & & {' & '.join(papers)} \\")
    return lines


def _latex_header(column: ColumnSpec) -> str:
    lines = wrap(column.header, HEADER_WIDTH)
    lines[-1] = header(replace(column, header=lines[-1]))
    text = r" \\ ".join(map(_latex, lines))
    return rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{text}\end{{tabular}}"


def _latex_block(block: Block, table: Table, at: int) -> list[str]:
    several, columns, body = len(table.blocks) > 1, block.shown, list[str]()
    for group, row in block.grouped_rows():
        if group is not None:
            body += [r"\addlinespace"] if body else []
            body.append(rf"\multicolumn{{{len(columns) + 2}}}{{l}}{{\textit{{{_latex(group)}}}}} \\")
        body += _latex_row(row, columns)
    # LaTeX counts tables itself: "Table 11: Table 3: ..." would be unclear.
    title = re.sub("^Table ", "Paper, Table ", f"{table.title}: {block.spec.title}" if several else table.title)
    scale = ", ".join([table.scale, *table.added])
    remarks = [LEGEND + constant_legend(block), *block.of_families, *block.warnings]
    if at == 1:
        remarks[:1] = [table.finding, remarks[0], *filter(None, [" ".join(table.spec.note.split())])]
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(f'{title} (scale: {scale})')}}}",
        rf"\label{{tab:{table.name}-{table.scale}{f'-{at}' if several else ''}}}",
        r"\setlength{\tabcolsep}{4pt}",
        *([r"\renewcommand{\arraystretch}{0.85}"] if len(body) > MOST_LINES else []),
        # Only what is wider than the line is made smaller.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{lr{'r' * len(columns)}}}",
        r"\toprule",
        rf" & $n$ & {' & '.join(map(_latex_header, columns))} \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\par\smallskip\raggedright\scriptsize",
        *[rf"{_latex(remark)}\par" for remark in remarks],
        r"\end{table}",
        "",
    ]


def to_latex(table: Table) -> str:
    """One ``table`` environment per block, with the columns of the page."""
    lines = ["% Needs \\usepackage{booktabs,graphicx}. Computed from run records: do not edit.", ""]
    return "\n".join(
        lines + [text for at, block in enumerate(table.blocks, 1) for text in _latex_block(block, table, at)]
    )


# ---- CSV, one line per cell, difference or note, for further computation

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


def _effect(found: Effect) -> dict[str, Any]:
    told = {"metric": found.column.metric, **_numbers(found.summary), "better": found.better, "text": found.text}
    return {**told, "measure": "log ratio" if found.ratio else "difference"}


def _difference(each: Difference) -> dict[str, Any]:
    return {
        **{"kind": "difference", "group": each.row.group, "row": each.row.label, "against": each.against.label},
        **_effect(each.effect),
        "primary": each.primary,
    }


def to_cells(table: Table) -> list[dict[str, Any]]:
    """Every cell and difference as a flat dict in JSON's types, then the notes; None where there is no number.

    ``command`` trains the missing runs of the cell's row. The key ``added`` is there only where a command added
    overrides to all runs.
    """
    more = {"added": list(table.added)} if table.added else {}
    found: list[dict[str, Any]] = []
    for block in table.blocks:
        parts = [_cell(row, column) for row in block.rows for column in block.spec.columns]
        parts += map(_difference, block.differences)
        for family in block.families:
            told = {"kind": "family", "against": family.against}
            parts.append({**told, "text": family.sentence})
            parts += [{**told, "row": label, **_effect(each)} for label, each in family.effects.items()]
        parts += [{"kind": "note", "text": text} for text in (*block.warnings, *block.notes)]
        found += [{"block": block.spec.title, **part} for part in parts]
    found.append({"kind": "finding", "text": table.finding})
    return [{**dict.fromkeys(FIELDS), "table": table.name, "scale": table.scale, **part, **more} for part in found]


def to_csv(table: Table) -> str:
    """The header is FIELDS, and "added" for overrides; lists are joined by semicolons, an empty field is no number."""
    import pandas as pd

    return pd.DataFrame(to_cells(table), dtype=object).map(_text).to_csv(index=False, lineterminator="\n")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ";".join(map(_text, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


RENDERERS = {"md": to_markdown, "tex": to_latex, "csv": to_csv}
