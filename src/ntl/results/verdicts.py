"""The claims of ``config/verdicts.yaml``, the comparisons that test each, and what they say, task by task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from statistics import fmean
from string import Formatter

from omegaconf import MISSING

from ntl.config.folders import CONFIG_DIR, RESULTS, choices
from ntl.evaluation.metrics import COVERED, Better
from ntl.results.effects import Effect, Outcome, Summary, effect, holm
from ntl.results.match import replications
from ntl.results.notes import model_name
from ntl.results.record import RunRecord
from ntl.results.spec import BAND, BlockSpec, ColumnSpec, PairSpec, check_pair, read_typed, table_spec
from ntl.results.table import Row, Table, by_seed, outcome_of, read_by, rows_by_label
from ntl.system.errors import UserError

VERDICTS = CONFIG_DIR / "verdicts.yaml"
BENCHMARKS = RESULTS / "benchmarks"
SCALES = ("", "tiny", "hour", "small", "finetune", "real", "paper")  # by size: of one task the largest that ran counts


class Whose(Enum):
    paper = "The paper's claims"
    ours = "Where a gain comes from"
    beyond = "Beyond the paper"


@dataclass
class CellSpec(PairSpec):
    """A task on which a claim is tested: ``row`` against ``against`` in one metric of a table, at each of its scales.

    Attributes:
        row, against: Labels of rows; empty: those of the claim.
        after: Whether the line was added when its records had been seen.
        benchmark: In place of a table, a CSV file of ``results/benchmarks``; ``where`` chooses its line, whose
            ``ratio`` is a time over that of CE. It is divided by that of the line where ``over`` differs.
    """

    task: str = MISSING
    table: str = ""
    metric: str = ""
    row: str = ""
    against: str = ""
    scales: list[str] = field(default_factory=list)
    after: bool = False
    benchmark: str = ""
    where: dict[str, str] = field(default_factory=dict)
    over: dict[str, str] = field(default_factory=dict)


@dataclass
class ClaimSpec:
    """``text`` as one sentence, ``source``: where it is claimed; ``no_worse`` claims that nothing is lost."""

    name: str = MISSING
    text: str = MISSING
    source: str = MISSING
    whose: Whose = MISSING
    row: str = ""
    against: str = ""
    no_worse: bool = False
    cells: list[CellSpec] = MISSING


@dataclass
class SentenceSpec:
    """What was learnt, with ``{claim/task}`` in place of numbers; ``holds``: the outcomes that it rests on."""

    text: str = MISSING
    holds: dict[str, Outcome] = MISSING


@dataclass
class VerdictsSpec:
    learnt: list[SentenceSpec] = MISSING
    claims: list[ClaimSpec] = MISSING


def load_verdicts(path: Path = VERDICTS) -> VerdictsSpec:
    """Read and check the claims. UserError, in one line, names the file, the key and what is wrong there."""
    spec: VerdictsSpec = read_typed(VerdictsSpec, path)
    for claim in spec.claims:
        for index, cell in enumerate(claim.cells):
            where = f"{path}: {claim.name}: cells[{index}]"
            if bool(cell.table) == bool(cell.benchmark):
                raise UserError(f"{where}: give a table or a benchmark")
            if cell.table:
                cell.row, cell.against = cell.row or claim.row, cell.against or claim.against
                table = table_spec(cell.table)
                column_of(check_pair(cell, table, where), cell.metric, where)
                if lost := [scale for scale in cell.scales if scale not in table.scales]:
                    raise UserError(f"{where}.scales: table {cell.table!r} has no scale {lost[0]!r}")
    return spec


def column_of(block: BlockSpec, metric: str, where: str) -> ColumnSpec:
    """The column of a metric; for a reading without a column of its own, that of the metric without the reading."""
    columns = {column.metric: column for column in block.columns if column.better is not Better.neither}
    name, _, reading = metric.partition("@")
    if metric in columns:
        return columns[metric]
    if name not in columns or reading not in choices("beside"):
        raise UserError(f"{where}: {metric!r} is no column with a good end: {', '.join(columns)}")
    old = columns[name]
    return ColumnSpec(metric, f"{old.header}, {reading}", old.format, old.paper_format, old.short)


@dataclass
class Cell:
    """A claim on one task at one scale. ``place`` is where it is computed from, in Markdown; ``what`` is compared.

    ``effect`` is of all published seeds of the two configurations. ``planned`` is that of the table's own seeds where
    the comparison is the one that the table is made for, whose ``band`` it has; ``corrected`` is its p among the
    ``family`` of all of those. ``said`` takes the place of the effect's text; ``parts`` says what this table and others
    show, ``covered`` of what part of the probability a decoding by number speaks.
    """

    spec: CellSpec
    scale: str
    place: str
    what: str
    effect: Effect | None = None
    outcome: Outcome = Outcome.not_run
    heuristic: str = ""
    planned: Effect | None = None
    band: float = BAND
    no_worse: bool = False
    said: str = ""
    parts: str = ""
    covered: str = ""
    corrected: float | None = None
    family: int = 0

    @property
    def few(self) -> bool:
        """Whether the outcome rests on three seeds, the fewest that have an interval."""
        return self.effect is not None and self.effect.summary.n == 3

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
            why = f"; the baseline does not beat {self.heuristic}"
        elif self.corrected is not None:
            against = f" against a loss of {self.band:.0%}" * self.no_worse
            p = f", p = {self.corrected:.2g}{against} corrected over the primary comparisons"
        after = "; added when the records had been seen" * self.spec.after
        return f"{self.said or self.effect.text}{self.parts}{p}{why}{self.covered}{after}"


@dataclass(frozen=True)
class Verdict:
    spec: ClaimSpec
    cells: tuple[Cell, ...]

    @property
    def tasks(self) -> dict[str, Cell]:
        """The cell of each task at the largest scale that ran, in the order of the file; without a run the first."""
        found: dict[str, Cell] = {}
        for cell in self.cells:
            best = found.setdefault(cell.spec.task, cell)
            if cell.effect and (not best.effect or SCALES.index(cell.scale) >= SCALES.index(best.scale)):
                found[cell.spec.task] = cell
        return found

    @property
    def outcome(self) -> Outcome:
        """That of the tasks which decide, "depends on the task" where they disagree; else why none decides."""
        outcomes = {cell.outcome for cell in self.tasks.values()}
        decided = outcomes & {Outcome.supported, Outcome.contradicted, Outcome.equivalent}
        order = (Outcome.inconclusive, Outcome.not_testable, Outcome.not_run)
        if len(decided) > 1:
            return Outcome.depends
        return decided.pop() if decided else next(each for each in order if each in outcomes)

    @property
    def said(self) -> str:
        """The outcome, how many of the tasks that ran have it, where not all, and whether it rests on three seeds."""
        ran = [cell for cell in self.tasks.values() if cell.effect is not None]
        same = [cell for cell in ran if cell.outcome is self.outcome]
        share = f" ({len(same)} of {len(ran)})" if 0 < len(same) < len(ran) else ""
        return f"{self.outcome.value}{share}{', n = 3' if same and all(cell.few for cell in same) else ''}"

    @property
    def by_task(self) -> str:
        """``supported: multiplication (hour); contradicted: arithmetic (hour)``, those that decide first."""
        found: dict[Outcome, list[str]] = {}
        for task, cell in self.tasks.items():
            beside = ", ".join(filter(None, [cell.scale, "n = 3" * cell.few]))
            found.setdefault(cell.outcome, []).append(f"{task} ({beside})".removesuffix(" ()"))
        return "; ".join(f"{each.value}: {', '.join(found[each])}" for each in Outcome if each in found)


def _table_cell(claim: ClaimSpec, cell: CellSpec, table: Table, records: Sequence[RunRecord]) -> Cell | None:
    block = table.spec.blocks[cell.block]
    made = next((each.rows for each in table.blocks if each.spec is block), None)
    if made is None or not (groups := rows_by_label(cell.groups, block, table.scale, made)):
        return None
    base_metric = cell.against_metric or cell.metric
    sides = (cell.against, base_metric), (cell.row, cell.metric)
    gate, column = (column_of(block, metric, cell.table) for _, metric in sides)
    wanted = table.spec.primary_of(table.scale)
    primary = not wanted.less and all(getattr(cell, key.name) == getattr(wanted, key.name) for key in fields(PairSpec))
    band = wanted.band if primary else BAND
    pairs = [[each[label] for label, _ in sides] for each in groups]
    own, others, both = [[row.records for row in pair] for pair in pairs], [], []
    for pair, have in zip(pairs, own, strict=True):
        base, other = more = [replications(row.plan, records) for row in pair]
        # No pair mixes processors.
        same = {seed for seed in base.keys() & other.keys() if base[seed].device == other[seed].device}
        others.append([{seed: run for seed, run in side.items() if seed in same} for side in more])
        both.append([a | b for a, b in zip(have, others[-1], strict=True)])
    here, there, found = (
        effect(column, [by_seed(base_metric, of) for of, _ in runs], [by_seed(cell.metric, of) for _, of in runs], band)
        for runs in (own, others, both)
    )
    column_words, names = (
        column.words.split(", ")[0],
        [str(row.plan.pins["model"]) for pair in pairs for row in pair[::-1]],
    )
    base, other = (read_by(*side) for side in sides)
    place = f"`{table.scale}`, [{table.parts[0]}](tables/{table.stem}.md), "
    place += ", ".join(dict.fromkeys(map(model_name, names)))
    new = Cell(cell, table.scale, place, f"{other} against {base}, {column_words}")
    if found is None or 0 < found.summary.n < 3:
        return new
    if here and there:
        in_table, in_others = (f"n = {part.summary.n}: {part.short}" for part in (here, there))
        new.parts = f" (in this table {in_table}; in others {in_others})"
    new.effect, new.planned, new.band, new.no_worse = found, here if primary else None, band, claim.no_worse
    heuristics, rows = block.scales[table.scale].heuristics, [[*each.values()] for each in groups]
    new.outcome, new.heuristic = outcome_of(found, gate, rows, heuristics, not claim.no_worse)
    new.covered = _covered(groups, sides[::-1])
    return new


def _covered(groups: Sequence[Mapping[str, Row]], sides: Sequence[tuple[str, str]]) -> str:
    """The mean probability of what the decoding of each side, a label and a metric, has found, where it is a part."""
    means = []
    for label, metric in sides:
        for column in ("represented", "covered"):  # an older search found what it covered alone
            name = f"{metric.partition('/')[0]}/{column}@{metric.partition('@')[2]}"
            found = [value for rows in groups for value in by_seed(name, rows[label].records).values()]
            if shares := [value for value in found if value is not None]:
                means.append(fmean(shares))
                break
    shares = " and ".join(f"{mean:.2f}" for mean in means)
    part = min(means, default=1.0) < COVERED
    return f"; the numbers that were found hold {shares} of the probability" if part else ""


def _benchmark_cell(claim: ClaimSpec, cell: CellSpec, folder: Path) -> Cell:
    """UserError: no such file, not one line in it as is named, or a column that it lacks."""
    import pandas as pd

    try:
        lines = pd.read_csv(folder / cell.benchmark, comment="#", dtype=str, keep_default_na=False).to_dict("records")

        def times(where: Mapping[str, str]) -> list[float]:
            (line,) = (line for line in lines if all(line[key] == value for key, value in where.items()))
            return [float(line[key]) for key in ("ratio", "ratio_low", "ratio_high", "rounds")]

        *ratios, rounds = times(cell.where)
        if cell.over:
            by, least, most, _ = times(cell.where | cell.over)
            ratios = [each / over for each, over in zip(ratios, (by, most, least), strict=True)]
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{VERDICTS}: {claim.name}: {cell.benchmark}: not one line as named ({error})") from error
    ratio, low, high = map(math.log, ratios)
    time = ColumnSpec("validation/loss", "time")  # any metric of which less is better
    found = Effect(time, Summary((), 0, ratio, None, low, high), True, math.log1p(BAND))
    said = "{:.2f} [{:.2f}, {:.2f}] times {}".format(*ratios, cell.against)
    place = f"[{cell.benchmark}](benchmarks/{cell.benchmark}), {rounds:.0f} timings"
    return Cell(cell, "", place, cell.row, found, found.outcome(not claim.no_worse), said=said)


def judge(
    spec: VerdictsSpec, tables: Sequence[Table], records: Sequence[RunRecord] = (), benchmarks: Path = BENCHMARKS
) -> list[Verdict]:
    """Every claim with its cells, whose links lead from ``results/``; ``records``: among which replications are found.

    The p of all primary comparisons that tables name and that have an interval, testable or not, are corrected together
    by Holm's method, by the t test: an exact p is never below 2 / 2^n, which no correction over many survives.
    """
    found = []
    for claim in spec.claims:
        cells: list[Cell | None] = []
        for cell in claim.cells:
            of_table = [table for table in tables if table.name == cell.table]
            shown = [table for table in of_table if table.scale in (cell.scales or [table.scale])]
            cells += [_table_cell(claim, cell, table, records) for table in shown]
            cells += [_benchmark_cell(claim, cell, benchmarks)] if cell.benchmark else []
        found.append(Verdict(claim, tuple(filter(None, cells))))
    planned = [(cell, cell.planned) for verdict in found for cell in verdict.cells if cell.planned]
    claimed = {(cell.spec.table, cell.scale) for cell, _ in planned}
    tested = [(cell, each.p(not cell.no_worse)) for cell, each in planned]
    unclaimed = [table.primary for table in tables if table.primary and (table.name, table.scale) not in claimed]
    known = [(cell, p) for cell, p in [*tested, *((None, each.p(True)) for each in unclaimed)] if p is not None]
    for (cell, _), corrected in zip(known, holm([p for _, p in known]), strict=True):
        if cell:
            cell.corrected, cell.family = corrected, len(known)
    return found


def learnt(spec: VerdictsSpec, verdicts: Sequence[Verdict]) -> list[str]:
    """The sentences on what was learnt, with the numbers of their cells.

    UserError: a sentence names no cell, or rests on an outcome that the records no longer have; or a claim is supported
    or contradicted on a task that sentences name, and none of them rests on it.
    """
    cells = {f"{each.spec.name}/{task}": cell for each in verdicts for task, cell in each.tasks.items()}
    found, held = list[str](), {name for sentence in spec.learnt for name in sentence.holds}
    for sentence in spec.learnt:
        named = [name for _, name, _, _ in Formatter().parse(sentence.text) if name]
        if lost := [name for name in (*named, *sentence.holds) if name not in cells]:
            raise UserError(f"{VERDICTS}: learnt: {lost[0]!r} is no claim/task")
        for name, wanted in sentence.holds.items():
            if (now := cells[name].outcome) is not wanted:
                raise UserError(
                    f"{VERDICTS}: learnt: {sentence.text[:40]!r}... rests on {name} being {wanted.value}, and it is "
                    f"{now.value}: write what is true now"
                )
        found.append(" ".join(sentence.text.format_map({name: cells[name].short for name in named}).split()))
    tasks, decided = {cells[name].spec.task for name in held}, {Outcome.supported, Outcome.contradicted}
    for name, cell in cells.items():
        if cell.outcome in decided and cell.spec.task in tasks and name not in held:
            raise UserError(
                f"{VERDICTS}: learnt: no sentence rests on {name} ({cell.outcome.value}): "
                "write one that is true of it, or name it in the `holds` of one that is"
            )
    return found
