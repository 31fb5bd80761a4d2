"""Rows against each other: what is best, and how far each row is from its baseline and its control."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ntl.config.table import Better, ColumnSpec, Role, RowSpec
from ntl.results.examples import example_difference
from ntl.results.match import RowPlan
from ntl.results.record import RunRecord
from ntl.results.statistics import Paired, paired, summarize

# One dict a row: metric -> seed -> value, None where the metric is undefined.
Grid = list[dict[str, dict[int, float | None]]]


@dataclass(frozen=True)
class DifferenceCell:
    """``examples``: with one common seed only, mean and 95 % bootstrap interval over test examples (accuracy)."""

    column: ColumnSpec
    paired: Paired | None
    examples: tuple[float, float, float] | None = None

    @property
    def excludes_zero(self) -> bool:
        if self.examples is not None:
            return self.examples[1] > 0 or self.examples[2] < 0
        return self.paired is not None and self.paired.excludes_zero


@dataclass(frozen=True)
class Difference:
    """``row`` minus ``against``, paired by seed, one cell a column."""

    row: RowSpec
    against: RowSpec
    cells: tuple[DifferenceCell, ...]


def best_rows(columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid) -> set[tuple[int, str]]:
    """(row index, metric) of the best row of each group, where the interval supports that it is.

    It does when the difference from the second best, paired by seed, has an interval without 0. A tie, fewer than
    three common seeds or a single row supports nothing. Rows that are undefined for a seed and constants do not run.
    """
    found = set()
    for column in columns:
        if column.better is Better.neither:
            continue
        for group in {plan.row.group for plan in plans}:
            ranked = []
            for index, plan in enumerate(plans):
                summary = summarize(list(grid[index][column.metric].values()))
                if plan.overrides and plan.row.group == group and summary.mean is not None and not summary.undefined:
                    ranked.append((-column.better.value * summary.mean, index))
            if len(ranked) > 1:
                (_, first), (_, second) = sorted(ranked)[:2]
                difference = paired(grid[second][column.metric], grid[first][column.metric])
                if difference is not None and difference.excludes_zero:
                    found.add((first, column.metric))
    return found


def constant_values(key: str, records: Sequence[RunRecord]) -> dict[int, float | None]:
    """The score of a constant answer, once, as it is the same in every record of the same data.

    Different data files give different scores: each is then listed.
    """
    scores = dict.fromkeys(record.metrics[key] for record in records if key in record.metrics)
    return dict(enumerate(sorted(scores, key=lambda score: (score is None, score or 0.0))))


def _difference(
    columns: Sequence[ColumnSpec],
    rows: tuple[RowSpec, RowSpec],
    values: tuple[Mapping[str, dict[int, float | None]], Mapping[str, dict[int, float | None]]],
    records: tuple[Mapping[int, RunRecord], Mapping[int, RunRecord]],
) -> Difference | None:
    cells = []
    common = sorted(set(records[0]) & set(records[1]))
    for column in columns:
        result = paired(values[0][column.metric], values[1][column.metric])
        only = len(common) == 1 and result is not None
        scored = only and column.metric.endswith("/accuracy")
        examples = (
            example_difference(column.metric, [(records[0][common[0]], records[1][common[0]])]) if scored else None
        )
        cells.append(DifferenceCell(column, result, examples))
    return Difference(rows[1], rows[0], tuple(cells)) if common else None


def against(plans: Sequence[RowPlan], role: Role) -> Iterator[tuple[int, int]]:
    """(index of a row with this role, index of another row of its group that has runs)."""
    for first, base in enumerate(plans):
        if base.row.role is role:
            for second, plan in enumerate(plans):
                if plan.overrides and second != first and plan.row.group == base.row.group:
                    yield first, second


def differences(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid, records: Sequence[Mapping[int, RunRecord]]
) -> list[Difference]:
    """Every row minus its group's baseline, and every ``ntl`` row minus its group's control, where seeds are shared."""
    found = []
    for role in (Role.baseline, Role.control):
        for first, second in against(plans, role):
            if role is Role.baseline or plans[second].row.role is Role.ntl:
                found.append(
                    _difference(
                        columns,
                        (plans[first].row, plans[second].row),
                        (grid[first], grid[second]),
                        (records[first], records[second]),
                    )
                )
    return [difference for difference in found if difference is not None]
