"""Rows against each other: the best, differences from baseline and control, and the table's primary comparison."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ntl.results.match import RowPlan
from ntl.results.record import RunRecord
from ntl.results.render.text import interval_text, seeds_text
from ntl.results.spec import SHORTCUT, Better, BlockSpec, ColumnSpec, PrimarySpec, Role
from ntl.results.statistics import ALPHA, Summary, example_difference, holm, paired, sign_flip_p, smallest_p, summarize
from ntl.results.table import Difference, DifferenceCell, Primary, Verdict, prints_as_zero

# One dict a row: metric -> seed -> value, None where the metric is undefined.
Grid = list[dict[str, dict[int, float | None]]]


def by_seed(metric: str, have: Mapping[int, RunRecord]) -> dict[int, float | None]:
    """A metric in the records that have it, by seed; None where it is undefined."""
    return {seed: record.value(metric) for seed, record in sorted(have.items()) if record.has(metric)}


def best_constant(column: ColumnSpec, plans: Sequence[RowPlan], grid: Grid) -> float | None:
    """The best score of a constant answer in a column; None where no constant is scored."""
    means = [
        summarize(list(line[column.metric].values())).mean
        for plan, line in zip(plans, grid, strict=True)
        if plan.row.role is Role.constant and plan.row.constant != SHORTCUT
    ]
    known = [mean for mean in means if mean is not None]
    return max(known, key=lambda mean: column.better.value * mean) if known and column.better.value else None


def beats_constants(column: ColumnSpec, plans: Sequence[RowPlan], grid: Grid) -> list[bool | None]:
    """For each row, whether its mean beats every constant answer; None without a mean or a constant to compare with."""
    constant = best_constant(column, plans, grid)
    means = [summarize(list(line[column.metric].values())).mean for line in grid]
    return [
        None if mean is None or constant is None or not plan.overrides else column.better.value * (mean - constant) > 0
        for plan, mean in zip(plans, means, strict=True)
    ]


def best_rows(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid, learnt: Sequence[bool | None] = ()
) -> set[tuple[int, str]]:
    """(row index, metric) of the best row of each group, where the interval supports it.

    The interval of the difference from the second best, paired by seed, must exclude 0, and the difference must not
    print as 0. With a tie, fewer than three common seeds or a single row there is no best row. Constants and rows that
    are undefined for a seed are left out. A row that is not ``learnt`` (at the table's endpoint), or that beats no
    constant answer in the column, is never best.
    """
    found = set()
    for column in columns:
        if column.better is Better.neither:
            continue
        beats = beats_constants(column, plans, grid)
        for group in {plan.row.group for plan in plans}:
            ranked = []
            for index, plan in enumerate(plans):
                summary = summarize(list(grid[index][column.metric].values()))
                if plan.overrides and plan.row.group == group and summary.mean is not None and not summary.undefined:
                    ranked.append((-column.better.value * summary.mean, index))
            if len(ranked) < 2:
                continue
            (_, first), (_, second) = sorted(ranked)[:2]
            difference = paired(grid[second][column.metric], grid[first][column.metric])
            if difference is None or not difference.excludes_zero:
                continue
            if prints_as_zero(difference.differences.mean or 0.0, column):
                continue
            if beats[first] is not False and (not learnt or learnt[first] is not False):
                found.add((first, column.metric))
    return found


def constant_values(key: str, records: Sequence[RunRecord]) -> dict[int, float | None]:
    """The score of a constant answer, which all records of the same data share.

    Records of different data files have different scores; each is listed once.
    """
    scores = dict.fromkeys(record.value(key) for record in records if key in record.metrics)
    return dict(enumerate(sorted(scores, key=lambda score: (score is None, score or 0.0))))


def difference(
    columns: Sequence[ColumnSpec],
    indices: tuple[int, int],
    plans: Sequence[RowPlan],
    grid: Grid,
    records: Sequence[Mapping[int, RunRecord]],
) -> Difference | None:
    """The second row minus the first; None where they have no seed in common."""
    first, second = indices
    common = sorted(set(records[first]) & set(records[second]))
    cells = []
    for column in columns:
        result = paired(grid[first][column.metric], grid[second][column.metric])
        scored = len(common) == 1 and result is not None and column.metric.endswith("/accuracy")
        pair = [(records[first][seed], records[second][seed]) for seed in common]
        values = result.differences.values if result else ()
        p = sign_flip_p(values) if len(values) > 1 and column.better is not Better.neither else None
        cells.append(DifferenceCell(column, result, example_difference(column.metric, pair) if scored else None, p))
    return Difference(plans[second].row, plans[first].row, tuple(cells)) if common else None


def _other_than_loss(plan: RowPlan) -> dict[str, Any]:
    return {key: value for key, value in plan.pins.items() if key.split(".")[0] != "loss"}


def same_but_loss(plans: Sequence[RowPlan], index: int) -> list[int]:
    """The indices of the other rows of a row's group whose runs differ from its runs in the loss alone."""
    return [
        other
        for other, plan in enumerate(plans)
        if other != index
        and plan.overrides
        and plan.row.group == plans[index].row.group
        and _other_than_loss(plan) == _other_than_loss(plans[index])
    ]


def control_baseline(plans: Sequence[RowPlan], control: int) -> int | None:
    """The row that the control adds its weight to: the baseline, or another row if the baseline's tokenizer differs."""
    rows = [index for index in same_but_loss(plans, control) if plans[index].row.role in (Role.baseline, Role.other)]
    return min(rows, key=lambda index: plans[index].row.role is not Role.baseline, default=None)


def pairs_with(plans: Sequence[RowPlan], role: Role) -> Iterator[tuple[int, int]]:
    """(index of a row with this role, index of another row of its group that has runs)."""
    for first, base in enumerate(plans):
        if base.row.role is role:
            for second, plan in enumerate(plans):
                if plan.overrides and second != first and plan.row.group == base.row.group:
                    yield first, second


def _is_ntl_of(plans: Sequence[RowPlan], control: int, index: int) -> bool:
    return plans[index].row.role is Role.ntl and index in same_but_loss(plans, control)


def differences(
    columns: Sequence[ColumnSpec],
    plans: Sequence[RowPlan],
    grid: Grid,
    records: Sequence[Mapping[int, RunRecord]],
    primary: tuple[int, int, str] | None = None,
) -> list[Difference]:
    """Every row minus its group's baseline, and every ``ntl`` row minus a control that differs in the loss alone.

    ``primary`` is (index of the row it is against, index of the row, metric): it comes first, whatever the roles of its
    rows, and its cell is marked.
    """
    pairs = [primary[:2]] if primary else []
    for role in (Role.baseline, Role.control):
        pairs += [
            pair
            for pair in pairs_with(plans, role)
            if pair not in pairs and (role is Role.baseline or _is_ntl_of(plans, *pair))
        ]
    found = [difference(columns, pair, plans, grid, records) for pair in pairs]
    if primary and found[0]:
        cells = [replace(cell, primary=cell.column.metric == primary[2]) for cell in found[0].cells]
        found[0] = replace(found[0], cells=tuple(cells))
    return [each for each in found if each is not None]


def corrected(blocks: Sequence[Sequence[Difference]]) -> list[tuple[Difference, ...]]:
    """The differences of each block with Holm's correction over every exploratory comparison of all blocks."""
    family = [cell for block in blocks for each in block for cell in each.cells if cell.p is not None]
    family = [cell for cell in family if not cell.primary]
    p_values = iter(holm([cell.p for cell in family if cell.p is not None]))

    def with_holm(cell: DifferenceCell) -> DifferenceCell:
        return cell if cell.p is None or cell.primary else replace(cell, holm=next(p_values))

    return [
        tuple(replace(each, cells=tuple(with_holm(cell) for cell in each.cells)) for each in block) for block in blocks
    ]


def primary_place(spec: PrimarySpec, block: BlockSpec, scale: str, plans: Sequence[RowPlan]) -> tuple[int, int, str]:
    """(index of the row it is against, index of the row, metric) among the plans of its block."""
    group = block.scales[scale].labels.get(spec.group, spec.group)
    places = {plan.row.label: index for index, plan in enumerate(plans) if plan.row.group == group and plan.overrides}
    return places[spec.against], places[spec.row], spec.metric


def find_primary(
    spec: PrimarySpec,
    block: BlockSpec,
    place: tuple[int, int, str],
    plans: Sequence[RowPlan],
    differences: Sequence[Difference],
    learnt: Sequence[bool | None],
    records: Sequence[Mapping[int, RunRecord]],
    grid: Grid,
) -> Primary:
    """The result of the comparison at ``place``; the other arguments describe its block and that block's rows."""
    against, row, metric = place
    cell = next((c for each in differences for c in each.cells if c.primary), None)
    column = next(column for column in block.columns if column.metric == metric)
    verdict = _verdict(cell, (learnt[row], learnt[against]))
    summary = cell.paired.differences if cell and cell.paired else None
    seen = [
        record
        for index in (row, against)
        for record in records[index].values()
        if any(str(record.git.get("commit") or "").startswith(commit) for commit in spec.seen)
    ]
    primary = Primary(
        group=plans[row].row.group,
        row=plans[row].row.label,
        against=plans[against].row.label,
        column=column,
        n=summary.n if summary else 0,
        mean=summary.mean if summary else None,
        low=summary.low if summary else None,
        high=summary.high if summary else None,
        p=cell.p if cell else None,
        verdict=verdict,
        named_after=bool(seen),
        sentence="",
    )
    notes = [f"{plans[i].row.label} beats no constant answer" for i in (row, against) if learnt[i] is False]
    if verdict is Verdict.not_learnt:
        notes = []
    if verdict is Verdict.better:
        notes += _control(plans, grid, (against, row), column)
    return Primary(**{**vars(primary), "sentence": _sentence(primary, summary, notes)})


def _verdict(cell: DifferenceCell | None, learnt: tuple[bool | None, bool | None]) -> Verdict:
    if cell is None or cell.paired is None:
        return Verdict.not_run
    summary = cell.paired.differences
    if summary.mean is None:
        return Verdict.undefined
    if learnt == (False, False):
        return Verdict.not_learnt
    if summary.low is None:
        return Verdict.too_few
    if not cell.paired.excludes_zero or prints_as_zero(summary.mean, cell.column):
        return Verdict.nothing
    return Verdict.better if cell.column.better.value * summary.mean > 0 else Verdict.worse


def _control(plans: Sequence[RowPlan], grid: Grid, pair: tuple[int, int], column: ColumnSpec) -> list[str]:
    """The gain of the control alone over the same row, where the rows differ in the loss alone."""
    base, row = pair
    for index in same_but_loss(plans, base) if row in same_but_loss(plans, base) else []:
        if plans[index].row.role is Role.control and index != row:
            gain = paired(grid[base][column.metric], grid[index][column.metric])
            text = interval_text(gain.differences, column) if gain else ""
            return [f"the control, which has no distance: {text}"] if text else []
    return []


_LEADS = {
    Verdict.not_run: "Nothing is shown yet: no seed of both {row} and {against} has {header}",
    Verdict.undefined: "Nothing is shown: {header} is undefined for a run of {row} or {against}",
    Verdict.not_learnt: "Nothing is shown, as neither {row} nor {against} beats a constant answer in {header}",
    Verdict.too_few: "Nothing is shown, as so few seeds have no interval: {row} minus {against} in {header}",
    Verdict.nothing: "No difference between {row} and {against} in {header} is shown",
    Verdict.better: "{row} is better than {against} in {header}",
    Verdict.worse: "{row} is worse than {against} in {header}",
}


def _sentence(primary: Primary, summary: Summary | None, notes: Sequence[str]) -> str:
    header = primary.column.header
    lead = _LEADS[primary.verdict].format(row=primary.row, against=primary.against, header=header)
    text = interval_text(summary, primary.column) if summary else ""
    if not text:
        return f"{lead}."
    if primary.verdict in (Verdict.better, Verdict.worse) and not primary.confirmed:
        lead += " by the interval, but not by the exact test"
    remarks = [primary.group] if primary.group else []
    remarks.append(seeds_text([primary.n]))
    if primary.p is not None:
        cannot = f", and n = {primary.n} cannot reach {ALPHA}" if smallest_p(primary.n) > ALPHA else ""
        remarks.append(f"exact p = {primary.p:.3g}{cannot}")
    if primary.named_after:
        remarks.append("named after these runs")
    result = f"{lead}: {text} ({'; '.join(remarks)})"
    return f"{'; '.join([result, *notes])}."
