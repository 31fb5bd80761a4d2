"""What ``make tables`` writes beside the tables: ``results/README.md``, and the results in the project's README."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ntl.config.folders import RESULTS
from ntl.results.claims import VERDICTS, Claim, ClaimSource, capitalized, judge_claims, load_claims
from ntl.results.figures.spec import figure_names, load_figure_spec
from ntl.results.render.markdown import escape, line
from ntl.results.table import Table
from ntl.system.errors import UserError, one_line_errors

FIGURES = RESULTS / "figures"
HEADLINE = ("table2", "hour")  # the table and scale whose finding README states
BEGIN, END = "<!-- results, written by `make tables` -->", "<!-- end of results -->"
_ABOUT = (
    "Made by `make tables` from the run records, the benchmarks and `config/claims.yaml`; never edited by hand. "
    "[LOG.md](LOG.md) is the log of experiments."
)
_CLAIMS_RULE = (
    "**Confirmed**: every comparison that was run has its 95% interval wholly on the claim's side, and neither row is "
    '"not learnt", which is no better than a constant answer. **Refuted**: the interval of at least one such '
    "comparison lies wholly on the other side. **Undecided**: all else, with the reason and how many comparisons have "
    "it. **Untested**: nothing was run. A difference is paired by seed, p is that of the exact sign-flip test, and "
    "neither is corrected for their number. A run at `scale=tiny` is of a small model in place of the paper's: the "
    "line names it, and says nothing of larger ones. The interval of a time is its quartiles."
)
_TABLES_RULE = (
    "Each page has the columns of the paper, and links to the rest. Every table names its one primary comparison in "
    "`config/table`, whose result is the finding; all others are exploratory. A difference is the first row minus the "
    "second, with its 95% t interval over paired seeds and the exact p of the sign-flip test. n is the number of seeds "
    "of a row. Core-hours are the wall time of the published runs of all rows, each on one thread, without the runs "
    "that they start from; tables that share a run count it each."
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
    claims = judge_claims(load_claims(known=[table.spec for table in tables]), tables)
    text = f"{before}{BEGIN}\n{readme_results(claims, tables)}\n{END}{after}"
    return {page: results_page(claims, tables), readme: text}


def results_page(claims: Sequence[Claim], tables: Sequence[Table]) -> str:
    """``results/README.md``: the verdict on each claim, the figures, the index of tables, then the evidence."""
    parts = [*_verdicts(claims), *_figures(), *_index(tables), *_evidence(claims)]
    return "\n".join(["# Results", "", _ABOUT, "", *parts])


def readme_results(claims: Sequence[Claim], tables: Sequence[Table]) -> str:
    """The generated part of README: one finding, a line for each claim, and the tables and figures of the paper."""
    (headline,) = (table for table in tables if (table.name, table.scale) == HEADLINE)
    page = f"[{headline.parts[0]} at `scale={headline.scale}`](results/tables/{headline.stem}.md)"
    finding = f"{page}: {escape(headline.finding)}"
    return "\n".join([finding, "", *_claim_lines(claims), *_of_paper(tables), "", _UNKNOWN])


def _verdicts(claims: Sequence[Claim]) -> Iterator[str]:
    yield from ["## What was learnt", "", _CLAIMS_RULE, ""]
    for whose in ClaimSource:
        members = [each for each in claims if each.spec.whose is whose]
        if members:
            yield from [f"### {whose.value}", "", line(["claim", "verdict", "why"]), line(["---"] * 3)]
            yield from (line([escape(c.spec.name), f"**{c.verdict}**", escape(c.why)]) for c in members)
            yield ""


def _figures() -> Iterator[str]:
    yield from ["## Figures", "", "Captions, and the figures of the paper, are in [figures](figures/README.md).", ""]
    for spec in map(load_figure_spec, figure_names()):
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
    """The wall time of the runs in a table's rows, each once, in hours; a run takes one core."""
    runs = {record.id: record for row in table.rows for record in row.records.values()}
    return sum(record.wall_time_s * record.num_devices for record in runs.values()) / 3600


def _evidence(claims: Sequence[Claim]) -> Iterator[str]:
    """Each claim's comparisons, those without a run in one line."""
    yield from ["## Evidence", ""]
    for claim in claims:
        yield from [f"### {capitalized(claim.spec.name)}: {claim.verdict}", ""]
        yield from [f"{escape(claim.spec.text)} ({escape(claim.spec.source)})", ""]
        for each in claim.ran:
            side = each.reason if each.side is None else ("for the claim" if each.side else "against it")
            yield f"- {each.where}: {escape(each.name)}: {escape(each.text)}: **{side}**"
        lacking: dict[str, dict[str, None]] = {}
        for each in claim.comparisons:
            if not each.text:
                lacking.setdefault(each.scale, {})[each.source] = None
        if lacking:
            parts = [f"`{scale}`, {', '.join(names)}" for scale, names in lacking.items()]
            yield f"- no run: {'; '.join(parts)}"
        yield ""


def _claim_lines(claims: Sequence[Claim]) -> Iterator[str]:
    """A line for each claim, and one for all beyond the paper."""
    yield from ["[The evidence for each claim](results/README.md#evidence), with intervals, n and p.", ""]
    for whose in (ClaimSource.paper, ClaimSource.ours):
        members = [each for each in claims if each.spec.whose is whose]
        yield from [f"{whose.value}:", ""]
        yield from (f"- **{each.verdict}**: {escape(each.sentence)}" for each in members)
        yield ""
    names: dict[str, list[str]] = {}
    for each in claims:
        if each.spec.whose is ClaimSource.beyond:
            names.setdefault(each.verdict, []).append(escape(each.spec.name))
    by_verdict = [f"**{verdict}** {'; '.join(names[verdict])}" for verdict in VERDICTS if verdict in names]
    if by_verdict:
        yield from [f"{ClaimSource.beyond.value}: {'. '.join(by_verdict)}.", ""]


def _of_paper(tables: Sequence[Table]) -> Iterator[str]:
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
                f"[{each.scale}](results/tables/{each.stem}.md){' (some runs)' * any(row.missing for row in each.rows)}"
                for each in at_scales
                if each.num_records
            ]
            lacking = [each.scale for each in at_scales if not each.num_records]
            yield line([what, escape(subject), command, ", ".join(there), ", ".join(lacking)])
    for spec in map(load_figure_spec, figure_names()):
        what, _, subject = spec.title.partition(": ")
        if what.startswith("Figure "):
            drawn = (FIGURES / f"{spec.name}.png").is_file()
            scale = ", ".join(dict.fromkeys(panel.scale for panel in spec.panels))
            link = f"[{scale or 'drawn'}](results/figures/{spec.name}.png)" if drawn else ""
            yield line([what, escape(subject), "`make figures`", link, "paper" if scale or not drawn else ""])
