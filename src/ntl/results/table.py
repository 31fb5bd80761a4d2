"""A computed table: rows and differences, and nothing of how it is written."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ntl.results.effects import Effect, Outcome, Seeds, Summary, beats, effect, summarize
from ntl.results.match import NOT_COMPUTED_WITH, RowPlan, computing
from ntl.results.record import RunRecord
from ntl.results.spec import REFERENCES, ColumnSpec, Role, RowSpec, TableSpec


@dataclass(eq=False)
class Row:
    """A row and the records of its runs by seed.

    ``values``: metric -> seed -> value; a constant row has the scores of its answer. ``learnt`` is False where the mean
    is no better than that of the best constant answer, at the table's endpoint. ``best``: the metrics in which it is
    the best of its group.
    """

    plan: RowPlan
    records: dict[int, RunRecord]
    values: dict[str, Seeds]
    learnt: bool | None = None
    best: frozenset[str] = frozenset()

    @property
    def spec(self) -> RowSpec:
        return self.plan.row

    @property
    def is_heuristic(self) -> bool:
        """Whether it is a constant answer. A rule that is wrong in a known way and a ridge regression need learning."""
        return self.spec.role is Role.constant and self.spec.constant not in REFERENCES

    @property
    def missing(self) -> list[int]:
        """The seeds without a record."""
        return [seed for seed in self.plan.seeds if seed not in self.records]

    @property
    def command(self) -> str:
        """Trains the missing runs; empty without any."""
        start = "python train.py -m" if len(self.missing) > 1 else "python train.py"
        words = [start, *self.plan.overrides, f"seed={','.join(map(str, self.missing))}"]
        return " ".join(words) if self.missing else ""

    def summary(self, column: ColumnSpec) -> Summary:
        """Of the records that have the metric; ``n`` and ``undefined`` are 0 where none has."""
        return summarize(list(self.values[column.metric].values()))

    def over(self, base: "Row", column: ColumnSpec) -> Effect | None:
        """The effect in a column over the seeds of both, None where they share none."""
        return effect(column, [base.values[column.metric]], [self.values[column.metric]])


def by_seed(metric: str, have: Mapping[int, RunRecord]) -> Seeds:
    """A metric in the records that have it, by seed; None where it is undefined."""
    return {seed: record.value(metric) for seed, record in sorted(have.items()) if record.has(metric)}


def outcome_of(
    found: Effect,
    gate: ColumnSpec,
    groups: Sequence[Sequence[Row]],
    more: Mapping[str, float],
    says_better: bool = True,
) -> tuple[Outcome, str]:
    """What an effect says of a claim, and the best heuristic, with its score, where that makes it not testable.

    Heuristics need no learning: the constant answers among the rows, and ``more``. Only the baselines of the groups
    have to beat them, in the column ``gate``: an arm that learns nothing is a result. One seed has no interval.
    """
    if found.summary.n == 1:
        return Outcome.not_run, ""
    values = [(row.spec.label, row.values.get(gate.metric, {})) for row in groups[0] if row.is_heuristic]
    known = [(name, value) for name, scores in values for value in scores.values() if value is not None]
    best = max((*known, *more.items()), key=lambda each: gate.better.value * each[1], default=None)
    base = [by_seed(gate.metric, row.records) for rows in groups for row in rows if row.spec.role is Role.baseline]
    if best is None or not base or beats(gate, base, best[1]):
        return found.outcome(says_better), ""
    return Outcome.not_testable, f"{best[0]} ({format(best[1], gate.format)})"


def pairs_with(rows: Sequence[Row], role: Role) -> Iterator[tuple[Row, Row]]:
    """(row with this role, another row of its group that has runs)."""
    for base in (row for row in rows if row.spec.role is role):
        for row in rows:
            if row.plan.overrides and row is not base and row.spec.group == base.spec.group:
                yield base, row


def same_but_loss(rows: Sequence[Row], row: Row) -> list[Row]:
    """The other rows of a row's group whose runs differ from its runs in the loss alone."""
    aside = {"loss", *NOT_COMPUTED_WITH}

    def rest(each: Row) -> dict[str, str]:
        return {key: value for key, value in each.plan.pins.items() if key.split(".")[0] not in aside}

    others = [other for other in rows if other is not row and other.plan.overrides]
    return [other for other in others if other.spec.group == row.spec.group and rest(other) == rest(row)]


@dataclass
class Difference:
    """The effect of ``row`` over ``against`` in a column; ``primary``: of the comparison that the table is made for.

    ``examples``: with one common seed only, the 95 % bootstrap interval of the accuracy over test examples.
    """

    row: RowSpec
    against: RowSpec
    effect: Effect
    examples: tuple[float, float] | None
    primary: bool


@dataclass(frozen=True)
class Block:
    """One data set's part of a table.

    ``endpoint`` is the column that decides what is learnt: that of the primary comparison, or the block's first.
    ``warnings`` are on the page, too; ``notes`` are in the CSV alone.
    """

    title: str
    columns: list[ColumnSpec]
    rows: list[Row]
    differences: list[Difference]
    warnings: list[str]
    notes: list[str]
    endpoint: ColumnSpec

    @property
    def shown(self) -> list[ColumnSpec]:
        """The columns of the page."""
        return [column for column in self.columns if not column.details]

    def grouped_rows(self) -> Iterator[tuple[str | None, Row]]:
        """Each row, with the name of its group where one begins, else None."""
        group = ""
        for row in self.rows:
            yield (None if row.spec.group == group else row.spec.group), row
            group = row.spec.group

    @property
    def seeds_per_row(self) -> list[int]:
        """The records of each row that is no constant."""
        return [len(row.records) for row in self.rows if not row.spec.constant]


@dataclass(frozen=True)
class Table:
    """A computed table. ``title`` has the models that ran; ``finding`` is a sentence: what it shows, or that it shows
    nothing."""

    spec: TableSpec = field(repr=False)
    scale: str
    title: str
    blocks: list[Block] = field(repr=False)
    finding: str

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def parts(self) -> tuple[str, str]:
        """The two parts of the file's title, as ``Table 2`` and ``loss variants``."""
        what, _, subject = self.spec.title.partition(": ")
        return what, subject

    @property
    def added(self) -> tuple[str, ...]:
        """The overrides that a command line added to all of its runs."""
        return computing(self.spec.added)

    @property
    def stem(self) -> str:
        """The name of its files; a table with added overrides has files of its own."""
        mark = f"_with_{hashlib.sha256(' '.join(self.added).encode()).hexdigest()[:8]}" if self.added else ""
        return f"{self.name}_{self.scale}{mark}"

    @property
    def rows(self) -> list[Row]:
        return [row for block in self.blocks for row in block.rows]

    @property
    def num_records(self) -> int:
        return sum(len(row.records) for row in self.rows)
