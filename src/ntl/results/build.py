"""A table built from run records: per cell mean, spread and interval over seeds, beside the paper's number."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from ntl.evaluation.metrics import Better
from ntl.results.effects import Outcome, Seeds, accuracy_interval, effect
from ntl.results.match import RowPlan, plan_table, row_records
from ntl.results.notes import heading, notes, warnings
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, ColumnSpec, PrimarySpec, Role, TableSpec, load_table_spec
from ntl.results.table import Block, Difference, Row, Table, by_seed, outcome_of, pairs_with, same_but_loss
from ntl.system.errors import UserError


def build_table(spec: str | TableSpec, records: Sequence[RunRecord], scale: str = "tiny") -> Table:
    """Compute a table of ``config/table`` (by name or as a loaded spec) from records alone.

    UserError: no such table or scale, a row that cannot be composed.
    """
    if isinstance(spec, str):
        spec = load_table_spec(spec)
    blocks: list[Block] = []
    parts, wanted, finding = plan_table(spec, scale), spec.primary_of(scale), ""
    for block, plans in parts:
        part, named, pair = block.scales[scale], block is spec.blocks[wanted.block], None
        endpoint = next(c for c in block.columns if not named or c.metric == wanted.metric)
        rows = _rows(block, plans, records, endpoint)
        if named:
            group = part.labels.get(wanted.group, wanted.group)
            by_label = {row.spec.label: row for row in rows if row.spec.group == group and row.plan.overrides}
            pair = by_label[wanted.against], by_label[wanted.row]
        found = Block(
            block.title,
            block.columns,
            [row for row in rows if not row.spec.constant or any(row.values.values())],
            differences(block.columns, rows, pair, endpoint.metric),
            warnings(block, scale, rows),
            notes(block, scale, rows),
            endpoint,
        )
        blocks.append(found)
        if pair:
            finding = find_primary(wanted, pair, found, part.heuristics_of(endpoint.metric))
    return Table(spec, scale, heading(spec, [plan for _, plans in parts for plan in plans]), blocks, finding)


def build_tables(names: Sequence[str], scale: str | None, records: Sequence[RunRecord]) -> list[Table]:
    """The tables of these names at a scale (None: each of theirs). UserError: no such table, none with that scale."""
    specs = [load_table_spec(name) for name in names]
    pairs = [(spec, each) for spec in specs for each in spec.scales if scale in (None, each)]
    if not pairs:
        known = dict.fromkeys(each for spec in specs for each in spec.scales)
        raise UserError(f"no table has the scale {scale!r}: choose from {', '.join(known)}")
    return [build_table(spec, records, each) for spec, each in pairs]


def constant_values(key: str, records: Sequence[RunRecord]) -> Seeds:
    """The score of a constant answer, which all records of the same data share.

    Records of different test data have scores of their own; each is listed once.
    """
    scores = dict.fromkeys((_test_files(record), record.value(key)) for record in records if key in record.metrics)
    return dict(enumerate(sorted((score for _, score in scores), key=lambda score: (score is None, score or 0.0))))


def _test_files(record: RunRecord) -> str:
    files = record.data.get("files", {})
    return json.dumps({name: files[name] for name in sorted(files) if not name.startswith(("train", "validation"))})


def _constant_key(metric: str, constant: str, records: Sequence[RunRecord]) -> str:
    # A constant answer does not depend on the decoding; another parse rule may read it differently.
    name, _, reading = metric.partition("@")
    decoded = any(reading in record.config.get("beside", {}) for record in records)
    return f"{name if decoded else metric}:{constant}"


def _rows(block: BlockSpec, plans: Sequence[RowPlan], records: Sequence[RunRecord], endpoint: ColumnSpec) -> list[Row]:
    by_row = [row_records(plan, records) for plan in plans]
    every = [record for have in by_row for record in have.values()]
    rows = []
    for plan, have in zip(plans, by_row, strict=True):
        values = {
            column.metric: constant_values(_constant_key(column.metric, plan.row.constant, every), every)
            if plan.row.constant
            else by_seed(column.metric, have)
            for column in block.columns
        }
        rows.append(Row(plan, have, values))
    for row, learnt in zip(rows, beats_constants(endpoint, rows), strict=True):
        row.learnt = learnt
    for column in block.columns:
        for row in best_rows(column, rows):
            row.best |= {column.metric}
    return rows


def beats_constants(column: ColumnSpec, rows: Sequence[Row]) -> list[bool | None]:
    """For each row, whether its mean beats every constant answer; None without a mean or a constant to compare with."""
    sign, means = column.better.value, [row.summary(column).mean for row in rows]
    constants = [mean for row, mean in zip(rows, means, strict=True) if row.is_heuristic and mean is not None]
    best = max((sign * mean for mean in constants), default=None)
    known = [mean if row.plan.overrides and sign else None for row, mean in zip(rows, means, strict=True)]
    return [None if mean is None or best is None else sign * mean > best for mean in known]


def best_rows(column: ColumnSpec, rows: Sequence[Row]) -> list[Row]:
    """The best row of each group, where its effect over the second best is shown and not within the band.

    With fewer than three common seeds or a single row there is no best row. Constants and rows that are undefined for a
    seed are left out. A row that is not ``learnt`` (at the table's endpoint), or that beats no constant answer in the
    column, is never best.
    """
    if column.better is Better.neither:
        return []
    found, beats = [], dict(zip(rows, beats_constants(column, rows), strict=True))
    means = {row: summary.mean for row in rows if row.plan.overrides and not (summary := row.summary(column)).undefined}
    ranked = sorted(
        (row for row, mean in means.items() if mean is not None),
        key=lambda row: (row.spec.group, -column.better.value * (means[row] or 0.0)),
    )
    for _, group in groupby(ranked, key=lambda row: row.spec.group):
        first, second, *_ = [*group, None]
        gap = first.over(second, column) if first and second else None
        if not first or not gap or gap.outcome(says_better=True) is not Outcome.supported:
            continue
        if beats[first] is not False and first.learnt is not False:
            found.append(first)
    return found


def differences(
    columns: Sequence[ColumnSpec], rows: Sequence[Row], primary: tuple[Row, Row] | None = None, endpoint: str = ""
) -> list[Difference]:
    """Every row over its group's baseline, and every ``ntl`` row over a control that differs in the loss alone.

    ``primary`` is (row it is against, row): it comes first, whatever the roles of its rows, and its effect in the
    metric ``endpoint`` is marked. Columns without a better end have no effects.
    """
    pairs = [*([primary] if primary else []), *pairs_with(rows, Role.baseline)]
    for control, row in pairs_with(rows, Role.control):
        if row.spec.role is Role.ntl and row in same_but_loss(rows, control):
            pairs.append((control, row))
    found = []
    for base, row in dict.fromkeys(pairs):
        for column in (each for each in columns if each.better is not Better.neither):
            if (gap := row.over(base, column)) is None:
                continue
            common, examples = sorted(set(base.records) & set(row.records)), None
            if len(common) == 1 and column.metric.endswith("/accuracy"):
                split = column.metric.partition("/")[0]
                examples = accuracy_interval(split, base.records[common[0]], row.records[common[0]])
            is_primary = (base, row) == primary and column.metric == endpoint
            found.append(Difference(row.spec, base.spec, gap, examples, is_primary))
    return found


def find_primary(spec: PrimarySpec, pair: tuple[Row, Row], block: Block, heuristics: Mapping[str, float]) -> str:
    """One sentence: what the comparison of ``pair``, (row it is against, row), says at the block's endpoint."""
    (against, row), endpoint = pair, block.endpoint
    first, second, header = row.spec.label, against.spec.label, endpoint.words
    found = effect(endpoint, [against.values[endpoint.metric]], [row.values[endpoint.metric]], spec.band)
    if found is None:
        return f"No run of a common seed of {first} and {second} yet."
    group = [each for each in block.rows if each.spec.group in (row.spec.group, "")]
    outcome, heuristic = outcome_of(found, endpoint, [group], heuristics)
    leads = {
        Outcome.not_run: f"One seed, which has no interval, of {first} against {second} in {header}",
        Outcome.not_testable: f"{first} and {second} cannot be compared in {header}: the baseline does not beat "
        f"{heuristic}",
        Outcome.equivalent: f"{first} and {second} are equivalent in {header}, within {spec.band:.0%}",
        Outcome.inconclusive: f"{first} and {second} do not differ significantly in {header}",
        Outcome.supported: f"{first} is better than {second} in {header}",
        Outcome.contradicted: f"{first} is worse than {second} in {header}",
    }
    after = found.power if outcome is Outcome.inconclusive else ""
    commits = [str(run.git.get("commit") or "") for each in pair for run in each.records.values()]
    if any(commit.startswith(tuple(spec.seen)) for commit in commits):
        after += "; named after these runs"
    within = f" ({row.spec.group})" if row.spec.group else ""
    return f"{leads[outcome]}{within}: {found.text}{after}."
