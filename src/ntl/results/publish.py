"""What is published: tables and their index, the page of claims, and chosen records."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ntl.results.claims import Claim, ClaimVerdict, Whose, capitalized
from ntl.results.load import RECORD, find_run
from ntl.results.record import PUBLISHED_ALONE, RunRecord, read_record, write_record
from ntl.results.render import csv, latex, markdown
from ntl.results.render.markdown import escape, line
from ntl.results.table import Table
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import write_text

# The files of a table, named by its stem, and what writes each.
RENDERERS: dict[str, Callable[[Table], str]] = {
    "{}.md": markdown.render,
    "details/{}.md": markdown.render_details,
    "{}.tex": latex.render,
    "{}.csv": csv.render,
}
# The paper's appendix was not available; there is a table here for each whose subject the paper's text names.
UNKNOWN = (
    "Tables A1 to A4 and Figure A3 of the paper are unknown: its appendix could not be had, and its text does not say "
    "what they show. Of Tables A5 to A7 and appendix A.5 the subject is known, the numbers are not."
)

CLAIMS_RULE = (
    "Made by `make tables` from the run records, the benchmarks and `config/claims.yaml`; never edited by hand. "
    "**Confirmed**: every comparison that was run has its 95% interval wholly on the claim's side, and neither row is "
    '"not learnt", which is no better than a constant answer. **Refuted**: the interval of at least one such '
    "comparison lies wholly on the other side. **Undecided**: all else, with the reason and how many comparisons have "
    "it. **Untested**: nothing was run. A difference is paired by seed, p is that of the exact sign-flip test, and "
    "neither is corrected for their number. A run at `scale=tiny` is of a small model in place of the paper's: the "
    "line names it, and says nothing of larger ones. The interval of a time is its quartiles."
)


def replace_between(page: str, name: str, text: str, path: Path) -> str:
    """``page``, the text of ``path``, with ``text`` between ``<!-- name -->`` and ``<!-- end of name -->``.

    UserError where the page does not have the two marks.
    """
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, marked, rest = page.partition(start)
    _, ended, after = rest.partition(end)
    if not marked or not ended:
        raise UserError(f"{path}: the {name} go between {start!r} and {end!r}, which are not there; add them.")
    return f"{before}{start}\n{text}\n{end}{after}"


def write_tables(tables: Sequence[Table], folder: Path | str) -> list[Path]:
    """``<stem>.md``, ``.tex`` and ``.csv`` for each table with records, and ``details/<stem>.md``.

    A table without any has no files: what an earlier call left of it is removed. The same records give the same bytes.
    """
    paths = []
    for table in tables:
        for name, render in RENDERERS.items():
            path = Path(folder) / name.format(table.stem)
            if table.num_records:
                write_text(path, render(table))
                paths.append(path)
            else:
                with one_line_errors("remove", path):
                    path.unlink(missing_ok=True)
    return paths


def write_index(tables: Sequence[Table], folder: Path | str) -> Path:
    """``README.md``: what each table with records tests, its finding, and the command that makes it."""
    lines = [
        "# Tables",
        "",
        "Computed from run records by `make tables`; never edited by hand. Each page has the columns of the paper, and "
        "links to the rest. Every table names its one primary comparison in `config/table`; all others are "
        "exploratory. A difference is the first row minus the second, with its 95% t interval over paired seeds and "
        "the exact p of the sign-flip test.",
        "",
        "| table | what it tests | scale | finding | command |",
        "| --- | --- | --- | --- | --- |",
    ]
    empty: dict[str, list[str]] = {}
    for table in tables:
        what, _, subject = table.subject.partition(": ")
        if not table.num_records:
            empty.setdefault(what, []).append(table.scale)
            continue
        page = f"[{what}]({table.stem}.md)"
        command = f"`make reproduce TABLE={table.name} SCALE={table.scale}`"
        lines.append(line([page, escape(subject or what), table.scale, escape(table.finding), command]))
    if empty:
        names = "; ".join(f"{what} ({', '.join(scales)})" for what, scales in empty.items())
        lines += ["", f"No run yet: {names}."]
    lines += ["", UNKNOWN, ""]
    path = Path(folder) / "README.md"
    write_text(path, "\n".join(lines))
    return path


def claims_list(claims: Sequence[Claim], page: str) -> str:
    """A Markdown list for README, with a link to ``page``: a line for each claim, one for all beyond the paper."""
    lines = [f"[The evidence for each]({page}), with intervals, n and p.", ""]
    for whose in (Whose.paper, Whose.ours):
        members = [each for each in claims if each.spec.whose is whose]
        lines += [f"{whose.value}:", ""]
        lines += [f"- **{each.verdict.value}**: {escape(each.sentence)}" for each in members]
        lines.append("")
    names: dict[ClaimVerdict, list[str]] = {}
    for each in claims:
        if each.spec.whose is Whose.beyond:
            names.setdefault(each.verdict, []).append(escape(each.spec.name))
    by_verdict = [f"**{verdict.value}** {'; '.join(names[verdict])}" for verdict in ClaimVerdict if verdict in names]
    lines += [f"{Whose.beyond.value}: {'. '.join(by_verdict)}."] if by_verdict else []
    return "\n".join(lines).strip()


def claims_page(claims: Sequence[Claim]) -> str:
    """``results/claims.md``: the rule, one row a claim, then each claim's comparisons; not run ones in one line."""
    lines = ["# Claims", "", CLAIMS_RULE, ""]
    for whose in Whose:
        members = [each for each in claims if each.spec.whose is whose]
        if not members:
            continue
        lines += [f"## {whose.value}", "", line(["claim", "verdict", "why"]), line(["---"] * 3)]
        lines += [line([escape(c.spec.name), f"**{c.verdict.value}**", escape(c.why)]) for c in members]
        lines.append("")
    lines += ["## Evidence", ""]
    for claim in claims:
        lines += [f"### {capitalized(claim.spec.name)}: {claim.verdict.value}", ""]
        lines += [f"{escape(claim.spec.text)} ({escape(claim.spec.source)})", ""]
        for each in claim.ran:
            side = each.reason if each.side is None else ("for the claim" if each.side else "against it")
            lines.append(f"- {each.where}: {escape(each.name)}: {escape(each.text)}: **{side}**")
        lacking: dict[str, dict[str, None]] = {}
        for each in claim.comparisons:
            if not each.ran:
                lacking.setdefault(each.scale, {})[each.source] = None
        if lacking:
            parts = [f"`{scale}`, {', '.join(names)}" for scale, names in lacking.items()]
            lines.append(f"- no run: {'; '.join(parts)}")
        lines.append("")
    return "\n".join(lines)


def find_record(run: str, outputs: Path) -> Path:
    """The record of a run named by its id or its folder. UserError where there is none."""
    folder = find_run(run, outputs)
    if not (folder / RECORD).is_file():
        raise UserError(f"{folder} has no {RECORD}: the run has not ended; resume it with the same command")
    return folder / RECORD


def publish_runs(
    runs: Iterable[str],
    outputs: Path | str = "outputs",
    target: Path | str = "results/runs",
    *,
    dirty: bool = False,
    answers: Callable[[Path], dict[str, Any]] | None = None,
) -> list[Path]:
    """Copy the records of finished runs, without predictions, to ``<target>/<id>.json``; all are checked first.

    ``answers``: the folder of a run -> the fields ``PUBLISHED_ALONE`` of a record that is not published with them yet.

    UserError: a different record is there under that id (published results are never replaced in silence), the run was
    started from a source with uncommitted changes and ``dirty`` does not allow it, or the folder cannot be written to.
    """
    paths = [find_record(run, Path(outputs)) for run in runs]
    records = [read_record(path) for path in paths]
    changed = [record.id for record in records if record.git.get("dirty")]
    if changed and not dirty:
        raise UserError(
            f"{changed[0]} was started from a source with uncommitted changes, which nobody can have again: commit and "
            "run it again, or python scripts/publish.py --dirty RUN, and every table with it will say so"
        )
    for number, (path, record) in enumerate(zip(paths, records, strict=True)):
        published = Path(target) / f"{record.id}.json"
        kept = read_record(published) if published.is_file() else record
        fields = {name: getattr(kept, name) for name in PUBLISHED_ALONE}
        if answers and not kept.worst:
            fields |= answers(path.parent)
        records[number] = replace(record, **fields)
    with one_line_errors("publish to", Path(target)):
        return [write_record(Path(target) / f"{record.id}.json", record) for record in records]


def loaded_weights(record: RunRecord) -> str:
    """The weights that a run was trained from, as its model's name does not say them; "" where none were loaded."""
    weights = record.model.get("weights")
    if weights is None:
        return ""
    named = [f"{name} {text}" for name, text in weights.items()]
    shape = [f"{name} {text}" for name, text in record.model.get("shape", {}).items()]
    parameters = f"{record.model.get('parameters', 0):,} parameters"
    return f"from weights with {', '.join([*named, parameters, *shape])}"
