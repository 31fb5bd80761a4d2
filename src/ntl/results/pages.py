"""What ``make tables`` writes beside the tables: ``results/README.md``, and the results in the project's README."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ntl.config.folders import CONFIG_DIR
from ntl.results.effects import ALPHA, Outcome
from ntl.results.record import RunRecord
from ntl.results.render import escape, line
from ntl.results.table import Table
from ntl.results.verdicts import Verdict, Whose, judge, learnt, load_verdicts
from ntl.system.errors import UserError, one_line_errors

TEMPLATE = CONFIG_DIR / "results.md"  # results/README.md, but for what is computed
BEGIN, END = "<!-- results, written by `make tables` -->", "<!-- end of results -->"


def pages(tables: Sequence[Table], records: Sequence[RunRecord], page: Path, readme: Path) -> dict[Path, str]:
    """The texts of ``results/README.md`` and of README by their paths. UserError: README has no place for results."""
    with one_line_errors("read", readme):
        before, begun, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise UserError(f"{readme}: the results go between {BEGIN!r} and {END!r}, which are not there; add them.")
    spec = load_verdicts()
    verdicts = judge(spec, tables, records)
    sentences = learnt(spec, verdicts)
    text = f"{before}{BEGIN}\n{readme_results(verdicts, sentences)}\n{END}{after}"
    return {page: results_page(verdicts, sentences, tables), readme: text}


def results_page(verdicts: Sequence[Verdict], sentences: Sequence[str], tables: Sequence[Table]) -> str:
    """``results/README.md``: what was learnt, verdicts, figures, tables of the paper and of ours, then the evidence."""
    parts = {
        "learnt": (f"- {escape(each)}" for each in sentences),
        "verdicts": _verdicts(verdicts),
        "corrected": [_corrected(verdicts)],
        "paper": _of_paper(tables),
        "tables": _index(tables),
        "evidence": _evidence(verdicts),
    }
    texts = {name: "\n".join(lines).rstrip("\n") for name, lines in parts.items()}
    return TEMPLATE.read_text(encoding="utf-8").format(**texts)


def readme_results(verdicts: Sequence[Verdict], sentences: Sequence[str]) -> str:
    """The generated part of README: what was learnt, and a line of verdicts for each kind of claim."""
    lines = [*(f"- {escape(each)}" for each in sentences), ""]
    for whose in Whose:
        names: dict[str, list[str]] = {}
        members = [(v, v.said.removeprefix(v.outcome.value)) for v in verdicts if v.spec.whose is whose]
        for each, share in sorted(members, key=lambda of: ([*Outcome].index(of[0].outcome), " of " in of[1])):
            lead = f"**{each.outcome.value}{' on some tasks' * (' of ' in share)}**"
            names.setdefault(lead, []).append(escape(f"{each.spec.name}{share}"))
        texts = [f"{lead} {'; '.join(of)}" for lead, of in names.items()]
        lines += [f"{whose.value}: {'. '.join(texts)}.", ""]
    end = f"{_corrected(verdicts)} [Each verdict with its tasks, intervals, n and p](results/README.md#verdicts)."
    return "\n".join([*lines, end])


def _corrected(verdicts: Sequence[Verdict]) -> str:
    found = [(cell, each.spec.name, cell.corrected) for each in verdicts for cell in each.cells]
    below = "; ".join(
        f"{name} ({cell.outcome.value})"
        for cell, name, p in found
        if p is not None and p < ALPHA and cell.outcome is not Outcome.not_testable
    )
    lead = f"After Holm's correction over the {max((cell.family for cell, *_ in found), default=0)} primary comparisons"
    lead += f" that our tables name and that have an interval, p is below {ALPHA} for"
    return escape(f"{lead}: {below}." if below else f"{lead} none.")


def _verdicts(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for whose in Whose:
        if members := [each for each in verdicts if each.spec.whose is whose]:
            yield from [f"### {whose.value}", "", line(["claim", "verdict", "task by task"]), line(["---"] * 3)]
            yield from (line([escape(v.spec.text), f"**{v.said}**", escape(v.by_task)]) for v in members)
            yield ""


def _index(tables: Sequence[Table]) -> Iterator[str]:
    empty: dict[str, list[str]] = {}
    for table in tables:
        what, subject = table.parts
        if not table.num_records:
            empty.setdefault(what, []).append(table.scale)
            continue
        seeds = [n for block in table.blocks for n in block.seeds_per_row if n]
        n = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
        page, command = f"[{what}](tables/{table.stem}.md)", f"make reproduce TABLE={table.name} SCALE={table.scale}"
        about = [page, escape(subject or what), table.scale, n, f"{core_hours(table):.2f}", escape(table.finding)]
        yield line([*about, f"`{command}`"])
    if empty:
        names = "; ".join(f"{what} ({', '.join(scales)})" for what, scales in empty.items())
        yield f"\nNo run yet: {names}."


def core_hours(table: Table) -> float:
    """Of the runs in a table's rows, each once."""
    runs = {record.id: record.core_seconds for row in table.rows for record in row.records.values()}
    return sum(runs.values()) / 3600


def _evidence(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Each claim's cells, those without a run in one line."""
    for verdict in verdicts:
        name = verdict.spec.name[:1].upper() + verdict.spec.name[1:]
        yield from [f"### {escape(name)}: {verdict.said}", ""]
        yield from [f"{escape(verdict.spec.text)} ({escape(verdict.spec.source)})", ""]
        for cell in verdict.cells:
            if cell.effect is not None:
                said = f"{escape(cell.what)}: {escape(cell.text)}: **{cell.outcome.value}{', n = 3' * cell.few}**"
                yield f"- {cell.spec.task}, {cell.place}: {said}"
        if lacking := [f"{cell.spec.task} (`{cell.scale}`)" for cell in verdict.cells if cell.effect is None]:
            yield f"- not run: {', '.join(lacking)}"
        yield ""


def _of_paper(tables: Sequence[Table]) -> Iterator[str]:
    """A line for each table of the paper: its command, what is published, the scales without a record.

    The paper's appendix was not available; there is a table for each whose subject the paper's text names.
    """
    for name, (first, *others) in groupby(tables, key=lambda table: table.name):
        what, subject = first.parts
        if what.startswith(("Table", "Appendix")):
            command = f"`python scripts/reproduce.py table={name.removeprefix('table').lstrip('_')} scale=tiny`"
            there, lacking = list[str](), list[str]()
            for each in (first, *others):
                some = " (some runs)" * any(row.missing for row in each.rows)
                page = f"[{each.scale}](tables/{each.stem}.md){some}"
                (there if each.num_records else lacking).append(page if each.num_records else each.scale)
            yield line([what, escape(subject), command, ", ".join(there), ", ".join(lacking)])
