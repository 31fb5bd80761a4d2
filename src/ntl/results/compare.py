"""Rows against each other: the best, differences from baseline and control, and the table's primary comparison."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ntl.evaluation.metrics import Better
from ntl.results.match import NOT_COMPUTED_WITH
from ntl.results.record import RunRecord
from ntl.results.render.text import interval_text, number, seeds_text
from ntl.results.spec import REFERENCES, BlockSpec, ColumnSpec, PrimarySpec, Role
from ntl.results.statistics import ALPHA, example_difference, holm, sign_flip_p, smallest_p, summarize
from ntl.results.table import Difference, DifferenceCell, Primary, Row, Verdict, prints_as_zero


def by_seed(metric: str, have: Mapping[int, RunRecord]) -> dict[int, float | None]:
    """A metric in the records that have it, by seed; None where it is undefined."""
    return {seed: record.value(metric) for seed, record in sorted(have.items()) if record.has(metric)}


def beats_constants(column: ColumnSpec, rows: Sequence[Row]) -> list[bool | None]:
    """For each row, whether its mean beats every constant answer; None without a mean or a constant to compare with."""
    sign = column.better.value
    answers = [row for row in rows if row.spec.role is Role.constant and row.spec.constant not in REFERENCES]
    scores = [sign * mean for row in answers if (mean := row.summary(column).mean) is not None]
    means = [row.summary(column).mean if row.plan.overrides and scores and sign else None for row in rows]
    return [None if mean is None else sign * mean - max(scores) > 0 for mean in means]


def best_rows(columns: Sequence[ColumnSpec], rows: Sequence[Row]) -> set[tuple[Row, str]]:
    """(row, metric) of the best row of each group, where the interval supports it.

    The interval of the difference from the second best, paired by seed, must exclude 0, and the difference must not
    print as 0. With a tie, fewer than three common seeds or a single row there is no best row. Constants and rows that
    are undefined for a seed are left out. A row that is not ``learnt`` (at the table's endpoint), or that beats no
    constant answer in the column, is never best.
    """
    found = set()
    for column in (column for column in columns if column.better is not Better.neither):
        beats = dict(zip(rows, beats_constants(column, rows), strict=True))
        for group in {row.spec.group for row in rows}:
            ranks = {}
            for row in rows:
                summary = row.summary(column)
                if (
                    row.plan.overrides
                    and row.spec.group == group
                    and summary.mean is not None
                    and not summary.undefined
                ):
                    ranks[row] = -column.better.value * summary.mean
            if len(ranks) < 2:
                continue
            first, second = sorted(ranks, key=ranks.__getitem__)[:2]
            gap = first.minus(second, column)
            if gap is None or not gap.excludes_zero or prints_as_zero(gap.differences.mean or 0.0, column):
                continue
            if beats[first] is not False and first.learnt is not False:
                found.add((first, column.metric))
    return found


def constant_values(key: str, records: Sequence[RunRecord]) -> dict[int, float | None]:
    """The score of a constant answer, which all records of the same data share.

    Records of different test data have scores of their own; each is listed once.
    """
    scores = dict.fromkeys((_test_files(record), record.value(key)) for record in records if key in record.metrics)
    return dict(enumerate(sorted((score for _, score in scores), key=lambda score: (score is None, score or 0.0))))


def _test_files(record: RunRecord) -> str:
    files = record.data.get("files", {})
    return json.dumps({name: files[name] for name in sorted(files) if not name.startswith(("train", "validation"))})


def _difference(columns: Sequence[ColumnSpec], base: Row, row: Row) -> Difference | None:
    """``row`` minus ``base``; None where they have no seed in common."""
    common = sorted(set(base.records) & set(row.records))
    cells = []
    for column in columns:
        result, examples = row.minus(base, column), None
        if len(common) == 1 and result is not None and column.metric.endswith("/accuracy"):
            examples = example_difference(column.metric, [(base.records[common[0]], row.records[common[0]])])
        values = result.differences.values if result else ()
        p = sign_flip_p(values) if len(values) > 1 and column.better is not Better.neither else None
        cells.append(DifferenceCell(column, result, examples, p))
    return Difference(row.spec, base.spec, tuple(cells)) if common else None


def _other_than_loss(row: Row) -> dict[str, Any]:
    aside = {"loss", *NOT_COMPUTED_WITH}
    return {key: value for key, value in row.plan.pins.items() if key.split(".")[0] not in aside}


def same_but_loss(rows: Sequence[Row], row: Row) -> list[Row]:
    """The other rows of a row's group whose runs differ from its runs in the loss alone."""
    others = [other for other in rows if other is not row and other.plan.overrides]
    others = [other for other in others if other.spec.group == row.spec.group]
    return [other for other in others if _other_than_loss(other) == _other_than_loss(row)]


def control_baseline(rows: Sequence[Row], control: Row) -> Row | None:
    """The row that the control adds its weight to: the baseline, or another row if the baseline's tokenizer differs."""
    found = [row for row in same_but_loss(rows, control) if row.spec.role in (Role.baseline, Role.other)]
    return min(found, key=lambda row: row.spec.role is not Role.baseline, default=None)


def pairs_with(rows: Sequence[Row], role: Role) -> Iterator[tuple[Row, Row]]:
    """(row with this role, another row of its group that has runs)."""
    for base in rows:
        if base.spec.role is role:
            for row in rows:
                if row.plan.overrides and row is not base and row.spec.group == base.spec.group:
                    yield base, row


def differences(
    columns: Sequence[ColumnSpec],
    rows: Sequence[Row],
    primary: tuple[Row, Row] | None = None,
    endpoint: str = "",
) -> list[Difference]:
    """Every row minus its group's baseline, and every ``ntl`` row minus a control that differs in the loss alone.

    ``primary`` is (row it is against, row): it comes first, whatever the roles of its rows, and its cells in the
    metric ``endpoint`` are marked.
    """
    pairs = [primary] if primary else []
    pairs += [pair for pair in pairs_with(rows, Role.baseline) if pair not in pairs]
    for control, row in pairs_with(rows, Role.control):
        if (control, row) not in pairs and row.spec.role is Role.ntl and row in same_but_loss(rows, control):
            pairs.append((control, row))
    found = [_difference(columns, *pair) for pair in pairs]
    if primary and found[0]:
        cells = [replace(cell, primary=cell.column.metric == endpoint) for cell in found[0].cells]
        found[0] = replace(found[0], cells=tuple(cells))
    return [each for each in found if each is not None]


def corrected(blocks: Sequence[Sequence[Difference]]) -> list[tuple[Difference, ...]]:
    """The differences of each block with Holm's correction over every exploratory comparison of all blocks."""
    cells = [cell for block in blocks for each in block for cell in each.cells]
    p_values = iter(holm([cell.p for cell in cells if cell.p is not None and not cell.primary]))

    def with_holm(cell: DifferenceCell) -> DifferenceCell:
        return cell if cell.p is None or cell.primary else replace(cell, holm=next(p_values))

    return [tuple(replace(each, cells=tuple(map(with_holm, each.cells))) for each in block) for block in blocks]


def primary_pair(spec: PrimarySpec, block: BlockSpec, scale: str, rows: Sequence[Row]) -> tuple[Row, Row]:
    """(row it is against, row) among the rows of its block."""
    group = block.scales[scale].labels.get(spec.group, spec.group)
    by_label = {row.spec.label: row for row in rows if row.spec.group == group and row.plan.overrides}
    return by_label[spec.against], by_label[spec.row]


_LEADS = {
    Verdict.not_run: "Nothing is shown yet: no seed of both {row} and {against} has {header}",
    Verdict.undefined: "Nothing is shown: {header} is undefined for a run of {row} or {against}",
    Verdict.not_learnt: "Nothing is shown, as neither {row} nor {against} beats a constant answer in {header}",
    Verdict.too_few: "Nothing is shown, as so few seeds have no interval: {row} minus {against} in {header}",
    Verdict.nothing: "No difference between {row} and {against} in {header} is shown",
    Verdict.better: "{row} is better than {against} in {header}",
    Verdict.worse: "{row} is worse than {against} in {header}",
}


def find_primary(
    spec: PrimarySpec,
    endpoint: ColumnSpec,
    pair: tuple[Row, Row],
    rows: Sequence[Row],
    differences: Sequence[Difference],
) -> Primary:
    """The result of the comparison of ``pair`` at the ``endpoint``; the other arguments are those of its block."""
    against, row = pair
    cell = next((c for each in differences for c in each.cells if c.primary), None)
    verdict = _verdict(cell, (row.learnt, against.learnt))
    commits = [str(run.git.get("commit") or "") for each in pair for run in each.records.values()]
    named_after = any(commit.startswith(tuple(spec.seen)) for commit in commits)
    lead = _LEADS[verdict].format(row=row.spec.label, against=against.spec.label, header=endpoint.header)
    text = interval_text(cell.paired.differences, endpoint) if cell and cell.paired else ""
    if not cell or not text:
        return Primary(verdict, None, named_after, f"{lead}.")
    if verdict in (Verdict.better, Verdict.worse) and (cell.p is None or cell.p > ALPHA):
        lead += " by the interval, but not by the exact test"
    # The mean of ``against`` over the seeds of both rows says how large a difference is.
    ours, theirs = row.values[endpoint.metric], against.values[endpoint.metric]
    common = summarize([theirs[seed] for seed in theirs if seed in ours])
    whole = "" if common.mean is None else number(common.mean, endpoint.format)
    remarks = [row.spec.group] if row.spec.group else []
    remarks.append(f"n = {seeds_text([common.n])}")
    if cell.p is not None:
        cannot = f", and n = {common.n} cannot reach {ALPHA}" if smallest_p(common.n) > ALPHA else ""
        remarks.append(f"exact p = {cell.p:.3g}{cannot}")
    if named_after:
        remarks.append("named after these runs")
    parts = [f"{lead}: {text} against a mean of {whole} ({'; '.join(remarks)})"]
    if verdict is not Verdict.not_learnt:
        parts += [f"{each.spec.label} beats no constant answer" for each in (row, against) if each.learnt is False]
    if verdict is Verdict.better:
        parts += _control_gain(rows, against, row, endpoint)
    return Primary(verdict, cell.p, named_after, f"{'; '.join(parts)}.")


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


def _control_gain(rows: Sequence[Row], base: Row, row: Row, column: ColumnSpec) -> list[str]:
    """The gain of the control alone over the same row, where the rows differ in the loss alone."""
    same = same_but_loss(rows, base)
    control = next((each for each in same if each.spec.role is Role.control and each is not row), None)
    gain = control.minus(base, column) if control and row in same else None
    text = interval_text(gain.differences, column) if gain else ""
    return [f"the control, which has no distance: {text}"] if text else []
