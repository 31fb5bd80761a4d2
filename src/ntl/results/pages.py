"""What ``make tables`` writes beside the tables: ``results/README.md``, and the results in the project's README."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ntl.config.folders import RESULTS
from ntl.results.effects import Outcome
from ntl.results.figures.spec import FigureSpec, figure_specs
from ntl.results.render.markdown import escape, line
from ntl.results.table import Table
from ntl.results.verdicts import Verdict, Whose, judge, learnt, load_verdicts
from ntl.system.errors import UserError, one_line_errors

FIGURES = RESULTS / "figures"
BEGIN, END = "<!-- results, written by `make tables` -->", "<!-- end of results -->"
_ABOUT = (
    "Made by `make tables` from the run records, the benchmarks and `config/verdicts.yaml`; never edited by hand. "
    "[LOG.md](LOG.md) is the log of experiments."
)
_VERDICTS_RULE = (
    "Each claim is tested task by task, in one metric, at the largest scale that ran; architectures are averaged "
    "within a seed, and rows are paired by seed. Errors are compared by the logarithm of their ratio, printed as "
    "percent; rates by their difference. The outcome of a task follows from the 95% t interval of the effect, without "
    "a correction:\n\n"
    "- **supported**, **contradicted**: the interval excludes 0 (for a claim that something is no worse: a loss "
    "of 5%);\n"
    "- **equivalent**: the interval lies within 5% of the baseline;\n"
    "- **inconclusive**: neither, with the effect that n could have shown;\n"
    "- **not testable**: the interval of the baseline does not beat the best heuristic, such as a constant "
    "answer;\n"
    "- **depends on the task**: supported on one, contradicted on another.\n\n"
    "Primary comparisons are those that the tables were made for; their p (t test) is also given corrected by Holm's "
    "method over all of them. All others are exploratory. An exact sign-flip p is printed where n can bring it below "
    "0.05. Runs at `scale=tiny` and `hour` are of small models in place of the paper's, and say nothing of larger "
    "ones; `real` is SmolLM2-135M. The interval of a time is its quartiles."
)
_TABLES_RULE = (
    "Each page has the columns of the paper, and links to the rest. Every table names its one primary comparison in "
    "`config/table`, whose result is the finding, by the rule of the verdicts; all others are exploratory. n is the "
    "number of seeds of a row. Core-hours are the wall time of the published runs of all rows, each on one thread, "
    "without the runs that they start from; tables that share a run count it each."
)
# The paper's appendix was not available; there is a table here for each whose subject the paper's text names.
_UNKNOWN = (
    "Tables A1 to A4 and Figure A3 of the paper are unknown: we had no access to its appendix, and its text does not "
    "say what they show. Of Tables A5 to A7 and appendix A.5 the subject is known, the numbers are not."
)


def pages(tables: Sequence[Table], page: Path, readme: Path) -> dict[Path, str]:
    """The texts of ``results/README.md`` and of README by their paths. UserError: README has no place for results."""
    with one_line_errors("read", readme):
        before, begun, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise UserError(f"{readme}: the results go between {BEGIN!r} and {END!r}, which are not there; add them.")
    spec = load_verdicts(known=[table.spec for table in tables])
    verdicts = judge(spec, tables)
    sentences = learnt(spec, verdicts)
    text = f"{before}{BEGIN}\n{readme_results(verdicts, sentences)}\n{END}{after}"
    return {page: results_page(verdicts, sentences, tables), readme: text}


def results_page(verdicts: Sequence[Verdict], sentences: Sequence[str], tables: Sequence[Table]) -> str:
    """``results/README.md``: what was learnt, verdicts, figures, tables of the paper and of ours, then the evidence."""
    specs = figure_specs()
    parts = [*_verdicts(verdicts, sentences), *_figures(specs), *_of_paper(tables, specs), *_index(tables)]
    return "\n".join(["# Results", "", _ABOUT, "", *parts, *_evidence(verdicts)])


def readme_results(verdicts: Sequence[Verdict], sentences: Sequence[str]) -> str:
    """The generated part of README: what was learnt, and a line of verdicts for each kind of claim."""
    lines = [*(f"- {escape(each)}" for each in sentences), ""]
    for whose in Whose:
        names: dict[tuple[Outcome, bool], list[str]] = {}
        for each in verdicts:
            if each.spec.whose is whose:
                share = each.said.removeprefix(each.outcome.value)
                names.setdefault((each.outcome, bool(share)), []).append(escape(f"{each.spec.name}{share}"))
        parts = [
            f"**{outcome.value}{' on some tasks' * in_part}** {'; '.join(names[outcome, in_part])}"
            for outcome in Outcome
            for in_part in (False, True)
            if (outcome, in_part) in names
        ]
        lines += [f"{whose.value}: {'. '.join(parts)}.", ""]
    return "\n".join([*lines, "[Each verdict with its tasks, intervals, n and p](results/README.md#verdicts)."])


def _verdicts(verdicts: Sequence[Verdict], sentences: Sequence[str]) -> Iterator[str]:
    yield from ["## What was learnt", "", *(f"- {escape(each)}" for each in sentences), ""]
    yield from ["## Verdicts", "", _VERDICTS_RULE, ""]
    for whose in Whose:
        members = [each for each in verdicts if each.spec.whose is whose]
        if members:
            yield from [f"### {whose.value}", "", line(["claim", "verdict", "task by task"]), line(["---"] * 3)]
            yield from (line([escape(v.spec.text), f"**{v.said}**", escape(v.by_task)]) for v in members)
            yield ""


def _figures(specs: Sequence[FigureSpec]) -> Iterator[str]:
    yield from ["## Figures", "", "Captions, and the figures of the paper, are in [figures](figures/README.md).", ""]
    for spec in sorted(specs, key=lambda spec: spec.name != "effects"):  # all comparisons in one
        if not spec.title.startswith("Figure ") and (FIGURES / f"{spec.name}.png").is_file():
            yield from [f"### {spec.title}", "", f"![{spec.title}](figures/{spec.name}.png)", ""]


def _index(tables: Sequence[Table]) -> Iterator[str]:
    yield from ["## Tables", "", _TABLES_RULE, ""]
    yield line(["table", "what it tests", "scale", "n", "core-hours", "finding", "command"])
    yield line(["---", "---", "---", "---:", "---:", "---", "---"])
    empty: dict[str, list[str]] = {}
    for table in tables:
        what, subject = table.parts
        if not table.num_records:
            empty.setdefault(what, []).append(table.scale)
            continue
        seeds = [n for block in table.blocks for n in block.seeds_per_row if n]
        n = f"{min(seeds)} to {max(seeds)}" if min(seeds) < max(seeds) else str(max(seeds))
        command = f"`make reproduce TABLE={table.name} SCALE={table.scale}`"
        page = f"[{what}](tables/{table.stem}.md)"
        hours = f"{core_hours(table):.2f}"
        yield line([page, escape(subject or what), table.scale, n, hours, escape(table.finding), command])
    yield ""
    if empty:
        names = "; ".join(f"{what} ({', '.join(scales)})" for what, scales in empty.items())
        yield from [f"No run yet: {names}.", ""]


def core_hours(table: Table) -> float:
    """Of the runs in a table's rows, each once."""
    runs = {record.id: record.core_seconds for row in table.rows for record in row.records.values()}
    return sum(runs.values()) / 3600


def _evidence(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Each claim's cells, those without a run in one line."""
    yield from ["## Evidence", ""]
    for verdict in verdicts:
        name = verdict.spec.name[:1].upper() + verdict.spec.name[1:]
        yield from [f"### {escape(name)}: {verdict.said}", ""]
        yield from [f"{escape(verdict.spec.text)} ({escape(verdict.spec.source)})", ""]
        for cell in verdict.cells:
            if cell.effect is not None:
                where = f"{cell.spec.task}, {cell.place}: {escape(cell.what)}"
                yield f"- {where}: {escape(cell.text)}: **{cell.outcome.value}**"
        if lacking := [f"{cell.spec.task} (`{cell.scale}`)" for cell in verdict.cells if cell.effect is None]:
            yield f"- not run: {', '.join(lacking)}"
        yield ""


def _of_paper(tables: Sequence[Table], specs: Sequence[FigureSpec]) -> Iterator[str]:
    """A line for each table and figure of the paper: its command, what is published, the scales without a record."""
    yield from ["## Tables and figures of the paper", ""]
    yield line(["paper", "what it shows", "command", "published", "no record"])
    yield line(["---"] * 5)
    for name, same in groupby(tables, key=lambda table: table.name):
        at_scales = list(same)
        what, subject = at_scales[0].parts
        if what.startswith(("Table", "Appendix")):
            command = f"`python scripts/reproduce.py table={name.removeprefix('table').lstrip('_')} scale=tiny`"
            there = [
                f"[{each.scale}](tables/{each.stem}.md){' (some runs)' * any(row.missing for row in each.rows)}"
                for each in at_scales
                if each.num_records
            ]
            lacking = [each.scale for each in at_scales if not each.num_records]
            yield line([what, escape(subject), command, ", ".join(there), ", ".join(lacking)])
    for spec in specs:
        what, _, subject = spec.title.partition(": ")
        if what.startswith("Figure "):
            drawn = (FIGURES / f"{spec.name}.png").is_file()
            scale = ", ".join(dict.fromkeys(panel.scale for panel in spec.panels))
            link = f"[{scale or 'drawn'}](figures/{spec.name}.png)" if drawn else ""
            yield line([what, escape(subject), "`make figures`", link, "paper" if scale or not drawn else ""])
    yield from ["", _UNKNOWN, ""]
