"""Rows against each other: the best, differences from baseline and control, and the table's primary comparison."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ntl.evaluation.metrics import Better
from ntl.results.match import NOT_COMPUTED_WITH
from ntl.results.record import RunRecord
from ntl.results.render.text import interval_text, number, seeds_text
from ntl.results.spec import REFERENCES, ColumnSpec, PrimarySpec, Role
from ntl.results.statistics import ALPHA, example_difference, holm, sign_flip_p, smallest_p, summarize
from ntl.results.table import Block, Difference, Primary, Row, Seeds, Verdict, prints_as_zero


def by_seed(metric: str, have: Mapping[int, RunRecord]) -> Seeds:
    """A metric in the records that have it, by seed; None where it is undefined."""
    return {seed: record.value(metric) for seed, record in sorted(have.items()) if record.has(metric)}


def constant_values(key: str, records: Sequence[RunRecord]) -> Seeds:
    """The score of a constant answer, which all records of the same data share.

    Records of different test data have scores of their own; each is listed once.
    """
    scores = dict.fromkeys((_test_files(record), record.value(key)) for record in records if key in record.metrics)
    return dict(enumerate(sorted((score for _, score in scores), key=lambda score: (score is None, score or 0.0))))


def _test_files(record: RunRecord) -> str:
    files = record.data.get("files", {})
    return json.dumps({name: files[name] for name in sorted(files) if not name.startswith(("train", "validation"))})


def beats_constants(column: ColumnSpec, rows: Sequence[Row]) -> list[bool | None]:
    """For each row, whether its mean beats every constant answer; None without a mean or a constant to compare with."""
    sign = column.better.value
    answers = [row for row in rows if row.spec.role is Role.constant and row.spec.constant not in REFERENCES]
    best = max((sign * mean for row in answers if (mean := row.mean(column)) is not None), default=None)
    means = [row.mean(column) if row.plan.overrides and best is not None and sign else None for row in rows]
    return [None if mean is None or best is None else sign * mean > best for mean in means]


def best_rows(column: ColumnSpec, rows: Sequence[Row]) -> list[Row]:
    """The best row of each group, where the interval supports it.

    The interval of the difference from the second best, paired by seed, must exclude 0, and the difference must not
    print as 0. With a tie, fewer than three common seeds or a single row there is no best row. Constants and rows that
    are undefined for a seed are left out. A row that is not ``learnt`` (at the table's endpoint), or that beats no
    constant answer in the column, is never best.
    """
    found: list[Row] = []
    if column.better is Better.neither:
        return found
    beats = dict(zip(rows, beats_constants(column, rows), strict=True))
    ranked = [row for row in rows if row.plan.overrides and row.mean(column) is not None]
    ranked = [row for row in ranked if not row.summary(column).undefined]
    ranked.sort(key=lambda row: (row.spec.group, -column.better.value * (row.mean(column) or 0.0)))
    for _, group in groupby(ranked, key=lambda row: row.spec.group):
        first, second, *_ = [*group, None, None]
        gap = first.minus(second, column) if first and second else None
        if not first or not gap or not gap.excludes_zero or prints_as_zero(gap.differences.mean or 0.0, column):
            continue
        if beats[first] is not False and first.learnt is not False:
            found.append(first)
    return found


def same_but_loss(rows: Sequence[Row], row: Row) -> list[Row]:
    """The other rows of a row's group whose runs differ from its runs in the loss alone."""
    aside = {"loss", *NOT_COMPUTED_WITH}

    def rest(each: Row) -> dict[str, str]:
        return {key: value for key, value in each.plan.pins.items() if key.split(".")[0] not in aside}

    others = [other for other in rows if other is not row and other.plan.overrides]
    return [other for other in others if other.spec.group == row.spec.group and rest(other) == rest(row)]


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

    ``primary`` is (row it is against, row): it comes first, whatever the roles of its rows, and its difference in the
    metric ``endpoint`` is marked.
    """
    pairs = [*([primary] if primary else []), *pairs_with(rows, Role.baseline)]
    for control, row in pairs_with(rows, Role.control):
        if row.spec.role is Role.ntl and row in same_but_loss(rows, control):
            pairs.append((control, row))
    found = []
    for base, row in dict.fromkeys(pairs):
        for column in columns:
            if (gap := row.minus(base, column)) is None:
                continue
            common, values, examples = sorted(set(base.records) & set(row.records)), gap.differences.values, None
            if len(common) == 1 and column.metric.endswith("/accuracy"):
                examples = example_difference(column.metric, [(base.records[common[0]], row.records[common[0]])])
            p = sign_flip_p(values) if len(values) > 1 and column.better is not Better.neither else None
            is_primary = (base, row) == primary and column.metric == endpoint
            found.append(Difference(row.spec, base.spec, column, gap, examples, p, is_primary))
    return found


def correct(blocks: Sequence[Block]) -> None:
    """Set Holm's correction over every exploratory comparison of all blocks."""
    tested = [each for block in blocks for each in block.differences if each.p is not None and not each.primary]
    for each, p in zip(tested, holm([each.p or 0.0 for each in tested]), strict=True):
        each.holm = p


_LEADS = {
    Verdict.not_run: "Nothing is shown yet: no seed of both {row} and {against} has {header}",
    Verdict.undefined: "Nothing is shown: {header} is undefined for a run of {row} or {against}",
    Verdict.not_learnt: "Nothing is shown, as neither {row} nor {against} beats a constant answer in {header}",
    Verdict.too_few: "Nothing is shown, as so few seeds have no interval: {row} minus {against} in {header}",
    Verdict.nothing: "No difference between {row} and {against} in {header} is shown",
    Verdict.better: "{row} is better than {against} in {header}",
    Verdict.worse: "{row} is worse than {against} in {header}",
}


def find_primary(spec: PrimarySpec, pair: tuple[Row, Row], block: Block) -> Primary:
    """The result of the comparison of ``pair``, (row it is against, row), at the endpoint of its ``block``."""
    (against, row), endpoint = pair, block.endpoint
    found = next((each for each in block.differences if each.primary), None)
    verdict = _verdict(found, (row.learnt, against.learnt))
    commits = [str(run.git.get("commit") or "") for each in pair for run in each.records.values()]
    named_after = any(commit.startswith(tuple(spec.seen)) for commit in commits)
    lead = _LEADS[verdict].format(row=row.spec.label, against=against.spec.label, header=endpoint.header)
    text = interval_text(found.paired.differences, endpoint) if found else ""
    if not found or not text:
        return Primary(verdict, None, named_after, f"{lead}.")
    if verdict in (Verdict.better, Verdict.worse) and (found.p is None or found.p > ALPHA):
        lead += " by the interval, but not by the exact test"
    # The mean of ``against`` over the seeds of both rows says how large a difference is.
    ours, theirs = row.values[endpoint.metric], against.values[endpoint.metric]
    common = summarize([theirs[seed] for seed in theirs if seed in ours])
    whole = "" if common.mean is None else number(common.mean, endpoint.format)
    remarks = [*filter(None, [row.spec.group]), f"n = {seeds_text([common.n])}"]
    if found.p is not None:
        cannot = f", and n = {common.n} cannot reach {ALPHA}" if smallest_p(common.n) > ALPHA else ""
        remarks.append(f"exact p = {found.p:.3g}{cannot}")
    if named_after:
        remarks.append("named after these runs")
    parts = [f"{lead}: {text} against a mean of {whole} ({'; '.join(remarks)})"]
    if verdict is not Verdict.not_learnt:
        parts += [f"{each.spec.label} beats no constant answer" for each in (row, against) if each.learnt is False]
    same = same_but_loss(block.rows, against)
    control = next((each for each in same if each.spec.role is Role.control and each is not row), None)
    gain = control.minus(against, endpoint) if control and row in same and verdict is Verdict.better else None
    if alone := interval_text(gain.differences, endpoint) if gain else "":
        parts.append(f"the control, which has no distance: {alone}")
    return Primary(verdict, found.p, named_after, f"{'; '.join(parts)}.")


def _verdict(found: Difference | None, learnt: tuple[bool | None, bool | None]) -> Verdict:
    if found is None:
        return Verdict.not_run
    summary = found.paired.differences
    if summary.mean is None:
        return Verdict.undefined
    if learnt == (False, False):
        return Verdict.not_learnt
    if summary.low is None:
        return Verdict.too_few
    if not found.paired.excludes_zero or prints_as_zero(summary.mean, found.column):
        return Verdict.nothing
    return Verdict.better if found.column.better.value * summary.mean > 0 else Verdict.worse
