"""Two notes about a gain over the baseline: how much of it the control gives, and what the test examples alone say."""

from collections.abc import Iterator, Mapping, Sequence

from ntl.config.table import Better, ColumnSpec, Role
from ntl.results.compare import Grid, against
from ntl.results.examples import example_difference
from ntl.results.match import RowPlan, row_name
from ntl.results.record import RunRecord
from ntl.results.statistics import Paired, paired
from ntl.results.text import number


def _groups(plans: Sequence[RowPlan]) -> Iterator[tuple[str, dict[Role, list[int]]]]:
    for group in dict.fromkeys(plan.row.group for plan in plans):
        roles: dict[Role, list[int]] = {}
        for index, plan in enumerate(plans):
            if plan.row.group == group:
                roles.setdefault(plan.row.role, []).append(index)
        yield group, roles


def control_note(columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid) -> str:
    """For each column the largest gain of an NTL row whose interval over seeds excludes 0, and the control's there.

    Empty where a group has no baseline, control or NTL row, or fewer than three seeds in common.
    """
    parts = []
    for group, roles in _groups(plans):
        if not all(roles.get(role) for role in (Role.baseline, Role.control, Role.ntl)):
            continue
        (base,), (control,) = roles[Role.baseline], roles[Role.control]
        found, none = [], []
        for column in columns:
            if column.better is Better.neither:
                continue
            values = [line[column.metric] for line in grid]
            alone, best = paired(values[base], values[control]), _best(column, values, base, roles[Role.ntl])
            if alone is None or alone.differences.low is None or best is None:
                continue
            gain, index = best
            if index is None:
                none.append(column.header)
            else:
                part = alone.differences.mean or 0.0
                whole = f"{number(gain, column.format, '+')} ({row_name(plans[index].row)})"
                found.append(f"{column.header}: {number(part, column.format, '+')} of {whole}, {part / gain:z.0%}")
        name = f"{group}: " if group else ""
        if found:
            parts.append(f"{name}{'; '.join(found)}")
        if none:
            parts.append(f"{name}No NTL row gains more than its seeds vary in {', '.join(none)}")
    return f"What the control alone gives of the largest gain over CE. {'. '.join(parts)}." if parts else ""


def _best(
    column: ColumnSpec, values: Sequence[Mapping[int, float | None]], base: int, rows: Sequence[int]
) -> tuple[float, int | None] | None:
    compared: list[tuple[int, Paired]] = [
        (index, difference) for index in rows if (difference := paired(values[base], values[index])) is not None
    ]
    known = [(each.differences.mean, index, each) for index, each in compared if each.differences.low is not None]
    if not known:
        return None
    gains = [(mean, index) for mean, index, each in known if mean is not None and each.excludes_zero]
    sign = column.better.value
    good = [(mean, index) for mean, index in gains if sign * mean > 0]
    return max(good, key=lambda each: sign * each[0]) if good else (0.0, None)


def example_note(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], records: Sequence[Mapping[int, RunRecord]]
) -> str:
    """Paired bootstrap over test examples of each row against its baseline, for accuracy and MAE.

    An example's score is its mean over the seeds that both rows have (``ntl.results.examples``).
    """
    parts = []
    for column in columns:
        clear, held = [], 0
        for base, index in against(plans, Role.baseline):
            result = _over_seeds(column.metric, records[base], records[index])
            if result is None:
                continue
            mean, low, high = (number(value, column.format, "+") for value in result)
            if result[1] > 0 or result[2] < 0:
                clear.append(f"{row_name(plans[index].row)} {mean} [{low}, {high}]")
            else:
                held += 1
        rest = f"{held} row{'s' if held > 1 else ''} with 0 in the interval" if held else ""
        if clear or held:
            parts.append(f"{column.header}: {'; '.join(filter(None, [*clear, rest]))}")
    if not parts:
        return ""
    return (
        "Minus CE over the test examples alone (paired bootstrap of the seeds' mean; it says nothing of other seeds). "
        f"{'. '.join(parts)}."
    )


def _over_seeds(
    metric: str, base: Mapping[int, RunRecord], other: Mapping[int, RunRecord]
) -> tuple[float, float, float] | None:
    pairs = [(base[seed], other[seed]) for seed in sorted(set(base) & set(other))]
    # Where a seed draws the test set too, an example has no mean over seeds.
    if len({str(record.data) for pair in pairs for record in pair}) != 1:
        return None
    return example_difference(metric, pairs)
