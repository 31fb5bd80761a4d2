"""The claims of ``config/verdicts.yaml``, what the comparisons that test each say, and the pages made of them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from string import Formatter

from ntl.config.folders import CONFIG_DIR, RESULTS
from ntl.results import spec as specs
from ntl.results.effects import ALPHA, Effect, Outcome, Summary, effect, holm
from ntl.results.match import Row, row_records
from ntl.results.record import RunRecord
from ntl.results.render import SQUARES_ARE, escape, line, squares
from ntl.results.spec import BAND, VERDICTS, CellSpec, ClaimSpec, column_of
from ntl.results.table import Table, lacking, model_name, outcome_of, read_by, rows_by_label, sides
from ntl.system.errors import UserError, one_line_errors

TEMPLATE = CONFIG_DIR / "results.md"  # results/README.md, but for what is computed
PICTURE = (
    "![CE and NTL-WAS, read greedily and by their distributions](results/figures/squares.png)\n\n"
    "*Errors relative to CE read greedily, with 95% intervals, paired by seed; numbers in the bars: means over n seeds."
    " APE: absolute percentage error. [As a table](results/README.md), with regression heads and ridge regression.*"
)
BEGIN, END = "<!-- results, written by `make tables` -->", "<!-- end of results -->"  # in the project's README
SCALES = ("", "tiny", "hour", "small", "finetune", "real", "paper")  # by size: of one task the largest that ran counts
DECIDED = (Outcome.supported, Outcome.contradicted, Outcome.equivalent)


@dataclass
class Cell:
    """A claim on one task at one scale. ``place`` is where it is computed from, in Markdown; ``what`` is compared.

    ``effect`` is of all published seeds of the two configurations, None below three. ``planned`` is the effect of
    the table's own seeds where the table is made for this comparison, whose ``band`` it has; ``corrected`` is its p
    among all of those. ``said`` takes the place of the effect's text; ``parts`` says what this table
    and others show.
    """

    claim: ClaimSpec
    spec: CellSpec
    scale: str
    place: str
    what: str
    effect: Effect | None = None
    outcome: Outcome = Outcome.not_run
    why: str = ""
    planned: Effect | None = None
    band: float = BAND
    said: str = ""
    parts: str = ""
    corrected: float | None = None

    @property
    def few(self) -> str:
        """Says that the outcome rests on three seeds, the fewest that have an interval."""
        return ", n = 3" if self.effect is not None and self.effect.summary.n == 3 else ""

    @property
    def short(self) -> str:
        """The effect and its interval alone."""
        return self.said or (self.effect.short if self.effect else "no run")

    @property
    def text(self) -> str:
        """The effect and, where nothing is shown, why."""
        if self.effect is None:
            return "no run"
        why, p = self.effect.power if self.outcome is Outcome.inconclusive and not self.said else "", ""
        if self.outcome is Outcome.not_testable:
            why = f"; {self.why}"
        elif self.corrected is not None:
            against = f" against a loss of {self.band:.0%}" * self.claim.no_worse
            p = f", p = {self.corrected:.2g}{against} corrected over the primary comparisons"
        after = "; added when the records had been seen" * self.spec.after
        return f"{self.said or self.effect.text}{self.parts}{p}{why}{after}"


@dataclass(frozen=True)
class Verdict:
    spec: ClaimSpec
    cells: tuple[Cell, ...]

    @property
    def tasks(self) -> dict[str, Cell]:
        """The cell of each task at the largest scale that ran, in the order of the file; without a run the first."""
        largest = dict[str, Cell]()
        for cell in self.cells:
            best = largest.setdefault(cell.spec.task, cell)
            if cell.effect and (not best.effect or SCALES.index(cell.scale) >= SCALES.index(best.scale)):
                largest[cell.spec.task] = cell
        return largest

    @property
    def outcome(self) -> Outcome:
        """That of the tasks which decide, "depends on the task" where they disagree; else why none decides."""
        outcomes = {cell.outcome for cell in self.tasks.values()}
        order = (*DECIDED, Outcome.inconclusive, Outcome.not_testable, Outcome.not_run)
        return Outcome.depends if len(outcomes & {*DECIDED}) > 1 else next(kind for kind in order if kind in outcomes)

    @property
    def share(self) -> str:
        """How many of the tasks that ran have the outcome, where not all, and whether it rests on three seeds."""
        ran = [cell for cell in self.tasks.values() if cell.effect is not None]
        same = [cell for cell in ran if cell.outcome is self.outcome]
        share = f" ({len(same)} of {len(ran)})" if 0 < len(same) < len(ran) else ""
        return f"{share}{', n = 3' if same and all(cell.few for cell in same) else ''}"

    @property
    def by_task(self) -> str:
        """``supported: multiplication (hour); contradicted: arithmetic (hour)``, those that decide first."""
        tasks = dict[Outcome, list[str]]()
        for task, cell in self.tasks.items():
            tasks.setdefault(cell.outcome, []).append(f"{task} ({cell.scale}{cell.few})".removesuffix(" ()"))
        return "; ".join(f"{outcome.value}: {', '.join(tasks[outcome])}" for outcome in Outcome if outcome in tasks)


def _table_cell(claim: ClaimSpec, cell: CellSpec, table: Table, records: Sequence[RunRecord]) -> Cell | None:
    block, scale = table.spec.blocks[cell.block], table.scale
    rows = next((built.rows for built in table.blocks if built.spec is block), None)
    if rows is None or not (groups := rows_by_label(cell.groups, block, scale, rows)):
        return None
    base_metric, wanted = cell.against_metric or cell.metric, table.spec.primary_of(scale)
    gate, column = (column_of(block, metric, cell.table) for metric in (base_metric, cell.metric))
    # A claim may name two readings the other way round.
    turned = replace(cell, row=cell.against, against=cell.row, metric=base_metric, against_metric=cell.metric)
    names = [key.name for key in fields(specs.PairSpec)]
    same, other = ([getattr(one, n) for n in names] == [getattr(wanted, n) for n in names] for one in (cell, turned))
    primary = (same or other) and not wanted.less
    band, pairs = wanted.band if primary else BAND, [(group[cell.against], group[cell.row]) for group in groups]
    own, others = [[row.records for row in pair] for pair in pairs], [replications(pair, records) for pair in pairs]
    both = [[one | other for one, other in zip(*parts, strict=True)] for parts in zip(own, others, strict=True)]
    here, there, pooled = (
        effect(column, *sides(base_metric, cell.metric, runs), band=band) for runs in (own, others, both)
    )
    models = ", ".join(dict.fromkeys(model_name(row.pins["model"]) for pair in pairs for row in pair[::-1]))
    place = f"`{scale}`, [{table.parts[0]}](tables/{table.stem}.md), {models}"
    what = f"{read_by(cell.row, cell.metric)} against {read_by(cell.against, base_metric)}"
    new = Cell(claim, cell, scale, place, f"{what}, {column.words.split(', ')[0]}", band=band)
    if pooled is None or 0 < pooled.summary.n < 3:
        return new
    if here and there:
        in_table, in_others = (f"n = {part.summary.n}: {part.short}" for part in (here, there))
        new.parts = f" (in this table {in_table}; in others {in_others})"
    new.effect, new.planned = pooled, here if primary else None
    new.outcome, new.why = outcome_of(pooled, gate, groups, block.scales[scale].heuristics, not claim.no_worse)
    if primary and wanted.assay:
        runs = own if same else [pair[::-1] for pair in own]
        if missing := lacking(wanted, column_of(block, wanted.assay, cell.table), runs):
            new.outcome, new.why = Outcome.not_testable, missing
    return new


def replications(pair: Sequence[Row], records: Sequence[RunRecord]) -> list[dict[int, RunRecord]]:
    """The records of two rows' configurations by the seeds that other tables ran, both on one kind of processor."""
    every = {record.seed for record in records}
    rows = [replace(row, readings=frozenset(), seeds=(*every.difference(row.seeds),)) for row in pair]
    base, other = (row_records(row, records) for row in rows)
    same = {seed for seed in base.keys() & other.keys() if base[seed].device == other[seed].device}
    return [{seed: run for seed, run in side.items() if seed in same} for side in (base, other)]


def _benchmark_cell(claim: ClaimSpec, cell: CellSpec, folder: Path) -> Cell:
    """UserError: no such file, not one line in it as is named, or a column that it lacks."""
    import pandas as pd

    def times(where: Mapping[str, str]) -> list[float]:
        (row,) = (row for row in lines if all(row[key] == value for key, value in where.items()))
        return [float(row[key]) for key in ("ratio", "ratio_low", "ratio_high", "rounds")]

    try:
        lines = pd.read_csv(folder / cell.benchmark, comment="#", dtype=str, keep_default_na=False).to_dict("records")
        *ratios, rounds = times(cell.where)
        by, least, most, _ = times(cell.where | cell.over) if cell.over else (1.0, 1.0, 1.0, 0)
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{VERDICTS}: {claim.name}: {cell.benchmark}: not one line as named ({error})") from error
    ratios = [ratio / over for ratio, over in zip(ratios, (by, most, least), strict=True)]
    ratio, low, high = map(math.log, ratios)
    time = specs.ColumnSpec("validation/loss", "time")  # any metric of which less is better
    timing = Effect(time, Summary((), 0, ratio, None, low, high), True, math.log1p(BAND), 1.0)
    said = "{:.2f} [{:.2f}, {:.2f}] times {}".format(*ratios, cell.against)
    place = f"[{cell.benchmark}](benchmarks/{cell.benchmark}), {rounds:.0f} timings"
    return Cell(claim, cell, "", place, cell.row, timing, timing.outcome(not claim.no_worse), said=said)


def judge(
    spec: specs.VerdictsSpec, tables: Sequence[Table], records: Sequence[RunRecord] = (), benchmarks: Path | None = None
) -> list[Verdict]:
    """Every claim with its cells, whose links lead from ``results/``; replications are found among ``records``."""
    verdicts = []
    for claim in spec.claims:
        cells = list[Cell | None]()
        for cell in claim.cells:
            of_table = [table for table in tables if table.spec.name == cell.table]
            shown = [table for table in of_table if table.scale in (cell.scales or SCALES)]
            cells += [_table_cell(claim, cell, table, records) for table in shown]
            cells += [_benchmark_cell(claim, cell, benchmarks or RESULTS / "benchmarks")] if cell.benchmark else []
        verdicts.append(Verdict(claim, tuple(filter(None, cells))))
    return verdicts


def correct(verdicts: Sequence[Verdict], tables: Sequence[Table]) -> list[tuple[Table, float]]:
    """Correct the p of the primary comparisons that have an interval, testable or not, together by Holm's method.

    Cells have theirs in ``corrected``; those of tables that no claim asks are returned. The tests are t tests: an
    exact p is never below 2 / 2^n, which no correction over many survives.
    """
    planned = [(cell, cell.planned) for verdict in verdicts for cell in verdict.cells if cell.planned]
    claimed = {(cell.spec.table, cell.scale) for cell, _ in planned}
    tested: list[tuple[Cell | Table, float | None]] = [(cell, gap.p(not cell.claim.no_worse)) for cell, gap in planned]
    others = [table for table in tables if (table.spec.name, table.scale) not in claimed]
    tested += [(table, table.primary.p(True)) for table in others if table.primary]
    family, unclaimed = [(one, p) for one, p in tested if p is not None], list[tuple[Table, float]]()
    for (one, _), corrected in zip(family, holm([p for _, p in family]), strict=True):
        if isinstance(one, Cell):
            one.corrected = corrected
        else:
            unclaimed.append((one, corrected))
    return unclaimed


def learnt(
    sentences: Sequence[specs.SentenceSpec],
    verdicts: Sequence[Verdict],
    complete: bool = True,
    planned: Mapping[str, tuple[str, Outcome]] | None = None,
) -> list[str]:
    """Sentences with the numbers of their cells and of ``planned`` comparisons, texts and outcomes by their names.

    UserError: a sentence names no cell, or rests on an outcome that the records no longer have; or, where they are to
    be ``complete``, a claim is supported or contradicted on a task that they name, and none of them rests on it.
    """
    cells = {f"{verdict.spec.name}/{task}": cell for verdict in verdicts for task, cell in verdict.tasks.items()}
    known = {name: (cell.short, cell.outcome) for name, cell in cells.items()} | dict(planned or {})
    texts, held = list[str](), {name for sentence in sentences for name in sentence.holds}
    for sentence in sentences:
        named = [name for _, name, _, _ in Formatter().parse(sentence.text) if name]
        if lost := [name for name in (*named, *sentence.holds) if name not in known]:
            raise UserError(f"{VERDICTS}: learnt: {lost[0]!r} is no claim/task")
        for name, wanted in sentence.holds.items():
            if (now := known[name][1]).name != wanted:
                basis = f"{name} being {wanted.replace('_', ' ')}, and it is {now.value}: write what is true now"
                raise UserError(f"{VERDICTS}: learnt: {sentence.text[:40]!r}... rests on {basis}")
        texts.append(" ".join(sentence.text.format_map({name: known[name][0] for name in named}).split()))
    tasks = {cells[name].spec.task for name in held if name in cells}
    for name, cell in cells.items():
        if complete and cell.outcome in DECIDED[:2] and cell.spec.task in tasks and name not in held:
            remedy = "write one that is true of it, or name it in the `holds` of one that is"
            raise UserError(f"{VERDICTS}: learnt: no sentence rests on {name} ({cell.outcome.value}): {remedy}")
    return texts


# ---- results/README.md, results/EVIDENCE.md, and the results in the project's README


def pages(tables: Sequence[Table], records: Sequence[RunRecord], folder: Path, readme: Path) -> dict[Path, str]:
    """The pages of ``folder`` and the project's README by their paths. UserError: README has no place for results."""
    with one_line_errors("read", readme):
        before, begun, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise UserError(f"{readme}: the results go between {BEGIN!r} and {END!r}, which are not there; add them.")
    spec = specs.load_verdicts()
    verdicts, square = judge(spec, tables, records), squares(spec.squares, tables)
    unclaimed, planned = correct(verdicts, tables), dict[str, tuple[str, Outcome]]()
    for table, p in unclaimed:
        short = table.primary.short if table.primary else ""
        planned[f"primary/{table.stem}"] = f"{short}, p = {p:.2g} after correction", table.outcome
    advice = [f"- {text}" for text in learnt(spec.advice, verdicts, complete=False)]
    sentences, below = learnt(spec.learnt, verdicts, planned=planned), corrected(verdicts, unclaimed)
    section = "\n".join([*advice, "", below, "", PICTURE])
    return {
        folder / "README.md": results_page(verdicts, below, sentences, square, tables),
        folder / "EVIDENCE.md": evidence_page(verdicts, unclaimed),
        readme: f"{before}{BEGIN}\n{section}\n{END}{after}",
    }


def results_page(
    verdicts: Sequence[Verdict], below: str, sentences: Sequence[str], square: Sequence[str], tables: Sequence[Table]
) -> str:
    """``results/README.md``: p ``below`` the level, what was learnt, losses by readings, verdicts and tables."""
    claims = list[str]()
    for whose, members in groupby(verdicts, key=lambda verdict: verdict.spec.whose):
        claims += [f"### {whose.value}", "", line(["claim", "verdict", "task by task"]), line(["---"] * 3)]
        for verdict in members:
            place = re.sub(r"[^\w\- ]", "", _heading(verdict).lower()).replace(" ", "-")
            link = f"[{escape(verdict.spec.text)}](EVIDENCE.md#{place})"
            claims.append(line([link, f"**{verdict.outcome.value}{verdict.share}**", escape(verdict.by_task)]))
        claims.append("")
    parts = {
        "learnt": [f"- {sentence}" for sentence in sentences],
        "squares": [*square, "", SQUARES_ARE],
        "verdicts": claims,
        "corrected": [below],
        "tables": _index(tables),
    }
    texts = {name: "\n".join(lines).rstrip("\n") for name, lines in parts.items()}
    return TEMPLATE.read_text(encoding="utf-8").format(**texts)


def corrected(verdicts: Sequence[Verdict], unclaimed: Sequence[tuple[Table, float]]) -> str:
    """A sentence, in Markdown, on the comparisons whose p is small after the correction."""
    cells = [cell for verdict in verdicts for cell in verdict.cells]
    tested = [(f"{cell.claim.name}, {cell.spec.task}", cell.outcome, cell.corrected) for cell in cells]
    tested += [(table.parts[0], table.outcome, p) for table, p in unclaimed]
    family = [(name, outcome, p) for name, outcome, p in tested if p is not None]
    below = [(name, outcome) for name, outcome, p in family if p < ALPHA]
    named = [f"{name} ({outcome.value})" for name, outcome in below if outcome is not Outcome.not_testable]
    others = [f"{len(below) - len(named)} that are not testable"] if len(below) > len(named) else []
    over = f"Of the {len(family)} tests of primary comparisons, {len(below) or 'none'}"
    of_these = f": {'; '.join([*named, *others])}" if below else ""
    return escape(f"{over} {'has' if len(below) == 1 else 'have'} p below {ALPHA} after Holm's correction{of_these}.")


def _index(tables: Sequence[Table]) -> list[str]:
    lines, empty = list[str](), dict[str, list[str]]()
    for table in tables:
        what, subject = table.parts
        if table.num_records:
            seeds = [n for block in table.blocks for n in block.seeds_per_row if n]
            n = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
            seconds = {run.id: run.core_seconds for row in table.rows for run in row.records.values()}
            page, hours = f"[{what}](tables/{table.stem}.md)", f"{sum(seconds.values()) / 3600:.2f}"
            lines.append(line([page, escape(subject or what), f"`{table.scale}`", n, hours]))
        else:
            empty.setdefault(what, []).append(table.scale)
    lacking = dict[str, list[str]]()
    for what, scales in empty.items():
        lacking.setdefault("` and `".join(scales), []).append(what)
    names = [f"at `{scales}`: {'; '.join(tables)}" for scales, tables in lacking.items()]
    return [*lines, f"\nNo run yet {'. '.join(names)}."] if names else lines


def _heading(verdict: Verdict) -> str:
    name = verdict.spec.name[:1].upper() + verdict.spec.name[1:]
    return f"{name}: {verdict.outcome.value}{verdict.share}"


def evidence_page(verdicts: Sequence[Verdict], unclaimed: Sequence[tuple[Table, float]]) -> str:
    """``results/EVIDENCE.md``: each claim with its comparisons, their effects, intervals, n and p; other primaries."""
    lines = [
        "# Evidence",
        "",
        "Each claim of the [verdicts](README.md#verdicts), task by task; [methods](METHODS.md).",
        "",
    ]
    for entry in verdicts:
        lines += [f"## {escape(_heading(entry))}", "", f"{escape(entry.spec.text)} ({escape(entry.spec.source)})", ""]
        for cell in (cell for cell in entry.cells if cell.effect is not None):
            text = f"{escape(cell.what)}: {escape(cell.text)}: **{cell.outcome.value}{cell.few}**"
            lines.append(f"- {cell.spec.task}, {cell.place}: {text}")
        lacking = [f"{cell.spec.task} (`{cell.scale}`)" for cell in entry.cells if cell.effect is None]
        lines += [*([f"- not run: {', '.join(lacking)}"] if lacking else []), ""]
    lines += ["## Primary comparisons of tables that no claim asks", ""]
    for table, p in unclaimed:
        finding = f"{escape(table.finding)} Corrected over the primary comparisons, p = {p:.2g}."
        lines.append(f"- [{table.parts[0]}](tables/{table.stem}.md), `{table.scale}`: {finding}")
    return "\n".join(lines)
