"""Two notes about a gain over the baseline: how much of it the control gives, and what the test examples alone say."""

from collections.abc import Mapping, Sequence

from ntl.config.table import Better, ColumnSpec, Role
from ntl.results.compare import Grid, against, alike, control_base
from ntl.results.examples import example_difference
from ntl.results.match import RowPlan, row_name
from ntl.results.packing import unpack_errors
from ntl.results.record import RunRecord, data_read
from ntl.results.statistics import Paired, paired
from ntl.results.text import number


def control_note(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid, learnt: Sequence[bool | None] = ()
) -> str:
    """``control_parts`` as one note, empty without any."""
    parts = control_parts(columns, plans, grid, learnt)
    return f"What the control, which has no distance, gives alone: {'. '.join(parts)}." if parts else ""


def control_parts(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid, learnt: Sequence[bool | None] = ()
) -> list[str]:
    """For each column the largest gain of an NTL row whose interval over seeds excludes 0, and the control's there.

    Gains are over the row without a number loss that differs from the control in the loss alone, and of rows that do,
    too; a row that has not ``learnt`` has none. Empty where a group has no such rows, or fewer than three seeds in
    common.
    """
    parts = []
    for control, plan in enumerate(plans):
        base = control_base(plans, control)
        if plan.row.role is not Role.control or base is None:
            continue
        rows = [index for index in alike(plans, control) if plans[index].row.role is Role.ntl]
        known = [index for index in rows if not learnt or learnt[index] is not False]
        name, over = f"{plan.row.group}: " if plan.row.group else "", plans[base].row.label
        found, none = _shares(columns, plans, grid, (base, control, known))
        if rows and not known:
            parts.append(f"{name}no NTL row beats a constant answer, so there is no gain to share")
        if found:
            parts.append(f"{name}of the largest gain over {over}, {'; '.join(found)}")
        if none:
            parts.append(f"{name}no NTL row gains more over {over} than its seeds vary in {', '.join(none)}")
    return parts


def _shares(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid, places: tuple[int, int, Sequence[int]]
) -> tuple[list[str], list[str]]:
    base, control, rows = places
    found, none = [], []
    for column in columns:
        values = [line[column.metric] for line in grid]
        alone, best = paired(values[base], values[control]), _best(column, values, base, rows)
        if column.better is Better.neither or alone is None or alone.differences.low is None or best is None:
            continue
        gain, index = best
        if index is None:
            none.append(column.header)
        else:
            part = alone.differences.mean or 0.0
            whole = f"{number(gain, column.format, '+')} ({plans[index].row.label})"
            found.append(f"{column.header}: {number(part, column.format, '+')} of {whole}, {part / gain:z.0%}")
    return found, none


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


# How a note of these scores begins: what of the test set it speaks of.
_WHOLE = {
    "accuracy": "All {count:.0f} test answers",
    "mae": "Only {kept} of the {count:.0f} test answers, as the records keep the errors of no more; unlike the table",
}


def example_notes(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], records: Sequence[Mapping[int, RunRecord]]
) -> list[str]:
    """Paired bootstrap over test examples of each row against its baseline, a note a column of accuracy or MAE.

    An example's score is its mean over the seeds that both rows have (``ntl.results.examples``). The first words say
    how many of the test answers it speaks of.
    """
    found = []
    for column in columns:
        clear, held, over = [], 0, ""
        for base, index in against(plans, Role.baseline):
            result = _over_seeds(column.metric, records[base], records[index])
            if result is None:
                continue
            mean, low, high = (number(value, column.format, "+") for value in result)
            over = f"{_answers(column.metric, records[index])}: {column.header} minus {plans[base].row.label}"
            if result[1] > 0 or result[2] < 0:
                clear.append(f"{row_name(plans[index].row)} {mean} [{low}, {high}]")
            else:
                held += 1
        rest = f"{held} row{'s' if held > 1 else ''} with 0 in the interval" if held else ""
        if over:
            told = "; ".join(filter(None, [*clear, rest]))
            found.append(f"{over}, paired bootstrap of the seeds' mean, which says nothing of other seeds. {told}.")
    return found


def _answers(metric: str, records: Mapping[int, RunRecord]) -> str:
    split, _, name = metric.partition("/")
    record = next(iter(records.values()))
    count = record.metrics.get(f"{split}/count") or 0
    kept = len(unpack_errors(record.errors[split])) if split in record.errors else 0
    return _WHOLE["accuracy" if kept >= count else name].format(kept=kept, count=count)


def _over_seeds(
    metric: str, base: Mapping[int, RunRecord], other: Mapping[int, RunRecord]
) -> tuple[float, float, float] | None:
    pairs = [(base[seed], other[seed]) for seed in sorted(set(base) & set(other))]
    # Where a seed draws the test set too, an example has no mean over seeds.
    if len({str(data_read(record)) for pair in pairs for record in pair}) != 1:
        return None
    return example_difference(metric, pairs)
