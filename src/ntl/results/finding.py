"""The one comparison that a table was made for: its result, and the sentence that says what the table shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ntl.config.table import BlockSpec, ColumnSpec, PrimarySpec, Role
from ntl.results.compare import ALPHA, Difference, DifferenceCell, Grid, alike, prints_as_zero
from ntl.results.match import RowPlan
from ntl.results.record import RunRecord
from ntl.results.statistics import Summary, paired, smallest_p
from ntl.results.text import interval_text, seeds_text


class Verdict(Enum):
    """What the primary comparison says; all but the last two say that nothing is shown."""

    not_run = "not run"
    too_few = "too few seeds"  # below three, which have no interval
    undefined = "undefined"
    not_learnt = "not learnt"  # neither row beats a constant answer
    nothing = "no difference shown"  # the interval holds 0
    better = "better"
    worse = "worse"


@dataclass(frozen=True)
class Primary:
    """``row`` minus ``against``, two rows of ``group``, in ``metric``, over the ``n`` seeds that both have.

    ``low`` and ``high`` are the 95 % t interval, None below three seeds; ``p`` is the exact two-sided sign-flip p, None
    below two. ``sentence`` is ``Table.finding``. ``named_after`` tells that the results were known when the comparison
    was named.
    """

    group: str
    row: str
    against: str
    column: ColumnSpec
    n: int
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict
    named_after: bool
    sentence: str

    @property
    def metric(self) -> str:
        return self.column.metric

    @property
    def confirmed(self) -> bool:
        """A difference whose interval excludes 0 and whose exact p is at most 0.05."""
        return self.verdict in (Verdict.better, Verdict.worse) and self.p is not None and self.p <= ALPHA


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
    """The result of the comparison at ``place``; everything else is of its block, or of that block's rows."""
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
    """What the control alone gains over the same row, where the comparison is of the loss alone."""
    base, row = pair
    for index in alike(plans, base) if row in alike(plans, base) else []:
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
