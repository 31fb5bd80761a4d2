"""A table computed from run records: rows, differences and a finding, and nothing of how it is written."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from typing import Any

from ntl.evaluation.metrics import Better
from ntl.results.effects import ALPHA, LEVEL, Effect, Outcome, Seeds, beats, effect, with_outcome
from ntl.results.match import NOT_COMPUTED_WITH, Row, by_seed, computing, plan_table, row_records
from ntl.results.notes import heading, notes, warnings
from ntl.results.record import RunRecord
from ntl.results.spec import BAND, BlockSpec, ColumnSpec, PrimarySpec, Role, TableSpec, load_table_spec

Line = dict[str, Any]  # of the CSV
Heuristics = Mapping[str, Mapping[str, float]]  # name -> metric -> score


def outcome_of(
    found: Effect, gate: ColumnSpec, groups: Sequence[Sequence[Row]], more: Heuristics, says_better: bool = True
) -> tuple[Outcome, str]:
    """What an effect says of a claim, and the best heuristic, with its score, where that makes it not testable.

    Heuristics need no learning: the constant answers among the rows, and ``more``. Only the baselines of the groups
    have to beat them, in the column ``gate`` or, where none is scored there, in the first that ``more`` is scored in:
    an arm that learns nothing is a result. Two seeds have no interval.
    """
    if 0 < found.summary.n < 3:
        return Outcome.not_run, ""
    scores = {row.spec.label: row.values.get(gate.metric, {}).values() for row in groups[0] if row.is_heuristic}
    known = [(name, value) for name, values in scores.items() for value in values if value is not None]
    others = [metric for scores in more.values() for metric in scores]
    if not known and others and gate.metric not in others:
        gate = ColumnSpec(others[0])
    known += [(name, scores[gate.metric]) for name, scores in more.items() if gate.metric in scores]
    best = max(known, key=lambda each: gate.better.value * each[1], default=None)
    base = [by_seed(gate.metric, row.records) for rows in groups for row in rows if row.spec.role is Role.baseline]
    if best is None or not base or beats(gate, base, best[1]):
        return found.outcome(says_better), ""
    return Outcome.not_testable, f"{best[0]} ({format(best[1], gate.format)})"


def effect_line(kind: str, found: Effect, base: Row, row: Row, **more: Any) -> Line:
    """A line of the CSV on the effect of a row over a base."""
    better = sum(value * found.column.better.value > 0 for value in found.summary.values)
    told = {"kind": kind, "row": row.spec.label, "against": base.spec.label, "metric": found.column.metric}
    told |= {**found.summary.line, "better": better, "text": found.text, **more}
    told |= {"group": row.spec.group} if kind == "difference" else {}
    return {**told, "measure": "log ratio" if found.ratio else "difference"}


@dataclass(frozen=True)
class Block:
    """One data set's part of a table.

    ``lines`` are those of the CSV that follow the cells: differences, families and notes. ``remarks`` are those of the
    page. ``endpoint`` is the column that decides what is learnt: that of the primary comparison, or the block's first.
    """

    spec: BlockSpec
    rows: list[Row]
    lines: list[Line]
    remarks: list[str]
    endpoint: ColumnSpec

    @property
    def shown(self) -> list[ColumnSpec]:
        """The columns of the page."""
        return [column for column in self.spec.columns if not column.details]

    @property
    def seeds_per_row(self) -> list[int]:
        """The records of each row that is no constant."""
        return [len(row.records) for row in self.rows if not row.spec.constant]


@dataclass(frozen=True)
class Table:
    """``title`` has the models that ran; ``finding`` is a sentence: what it shows, or that it shows nothing.

    ``primary`` is the effect that the table is made for; None without a run of a common seed.
    """

    spec: TableSpec = field(repr=False)
    scale: str
    title: str
    blocks: list[Block] = field(repr=False)
    finding: str
    primary: Effect | None

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

    @property
    def core_hours(self) -> float:
        """Of the runs in its rows, each once."""
        runs = {record.id: record.core_seconds for row in self.rows for record in row.records.values()}
        return sum(runs.values()) / 3600


# ---- from records


def build_table(spec: str | TableSpec, records: Sequence[RunRecord], scale: str = "tiny") -> Table:
    """Compute a table of ``config/table`` (by name or as a loaded spec) from records alone.

    UserError: no such table or scale, a row that cannot be composed.
    """
    spec = load_table_spec(spec) if isinstance(spec, str) else spec
    parts, wanted, blocks = plan_table(spec, scale), spec.primary_at.get(scale, spec.primary), list[Block]()
    primary, finding = None, ""
    for block, rows in parts:
        pair, lines, endpoint = None, list[Line](), block.columns[0]
        if named := block is spec.blocks[wanted.block]:
            endpoint = next(column for column in block.columns if column.metric == wanted.metric)
        _fill(block, rows, records, endpoint)
        if named:
            pair, primary, finding = find_primary(wanted, block, scale, rows)
            if primary and (wanted.against_metric or wanted.less or wanted.groups[1:]):  # none of the other differences
                lines.append(effect_line("difference", primary, *pair, primary=True))
                pair = None
        families, warned = [*_families(block, rows)], [*warnings(block, scale, rows)]
        texts = [{"kind": "note", "text": text} for text in (*warned, *notes(block, scale, rows))]
        lines += [*differences(block.columns, rows, pair, endpoint.metric), *families, *texts]
        remarks = [f"{each['row']}: {each['text']}." if "row" in each else each["text"] for each in families] + warned
        shown = [row for row in rows if not row.spec.constant or any(row.values.values())]
        blocks.append(Block(block, shown, lines, remarks, endpoint))
    return Table(spec, scale, heading(spec, [row for _, rows in parts for row in rows]), blocks, finding, primary)


def _families(block: BlockSpec, rows: Sequence[Row]) -> Iterator[Line]:
    """What a sentence says of several rows, and the effect of each."""
    by_label = {row.spec.label: row for row in rows if not row.spec.constant}
    for family in block.families:
        count, level = len(family.rows), 1 - ALPHA / len(family.rows)  # Bonferroni
        column = next(column for column in block.columns if column.metric == family.metric)
        base = by_label[family.against]
        found = {label: gap for label in family.rows if (gap := by_label[label].over(base, column, level))}
        shown = {"better": Outcome.supported, "worse": Outcome.contradicted, "equal": Outcome.equivalent}
        said = "; ".join(f"{word}: {', '.join(with_outcome(found, says)) or 'none'}" for word, says in shown.items())
        sentence = (
            f"Each of {count} against {family.against} in {column.words}, with intervals of {level:.1%}, so that all "
            f"hold together with {LEVEL:.0%} (Bonferroni); p is exact and not corrected. Of these, {said} "
            f"(within {BAND:.0%})."
        )
        if found:
            yield {"kind": "family", "against": family.against, "text": sentence}
            yield from (effect_line("family", gap, base, by_label[label]) for label, gap in found.items())


def constant_values(key: str, records: Sequence[RunRecord]) -> Seeds:
    """The score of a constant answer, which all records of the same data share.

    Records of different test data have scores of their own; each is listed once.
    """
    found = dict[tuple[frozenset[Any], float | None], None]()
    for record in (record for record in records if key in record.metrics):
        files = record.data.get("files", {}).items()
        test_files = frozenset(each for each in files if not each[0].startswith(("train", "validation")))
        found[test_files, record.value(key)] = None
    return dict(enumerate(sorted((score for _, score in found), key=lambda score: (score is None, score or 0.0))))


def _fill(block: BlockSpec, rows: Sequence[Row], records: Sequence[RunRecord], endpoint: ColumnSpec) -> None:
    """Give the rows their records, their values, and what these say beside one another."""
    for row in rows:
        row.records = row_records(row, records)
    every = [record for row in rows for record in row.records.values()]
    readings = {reading for record in every for reading in record.config.get("beside", {})}
    for row, column in product(rows, block.columns):
        # A constant answer does not depend on the decoding; another parse rule may read it differently.
        name, _, reading = column.metric.partition("@")
        key = f"{name if reading in readings else column.metric}:{row.spec.constant}"
        values = constant_values(key, every) if row.spec.constant else by_seed(column.metric, row.records)
        row.values[column.metric] = values
    for row, learnt in beats_constants(endpoint, rows).items():
        row.learnt = learnt
    for column in block.columns:
        for row in best_rows(column, rows):
            row.best.add(column.metric)


def beats_constants(column: ColumnSpec, rows: Sequence[Row]) -> dict[Row, bool | None]:
    """For each row, whether its mean beats every constant answer; None without a mean or a constant to compare with."""
    sign, means = column.better.value, {row: row.summary(column).mean for row in rows}
    best = max((sign * mean for row, mean in means.items() if row.is_heuristic and mean is not None), default=None)
    known = {row: mean if row.overrides and sign else None for row, mean in means.items()}
    return {row: None if mean is None or best is None else sign * mean > best for row, mean in known.items()}


def best_rows(column: ColumnSpec, rows: Sequence[Row]) -> list[Row]:
    """The best row of each group, where its effect over the second best is shown and not within the band.

    With fewer than three common seeds or a single row there is no best row. Constants and rows that are undefined for a
    seed are left out. A row that is not ``learnt`` (at the table's endpoint), or that beats no constant answer in the
    column, is never best.
    """
    if column.better is Better.neither:
        return []
    ahead, summaries = beats_constants(column, rows), [(row, row.summary(column)) for row in rows if row.overrides]
    means = {row: each.mean for row, each in summaries if each.mean is not None and not each.undefined}
    ranked = sorted(means, key=lambda row: (row.spec.group, -column.better.value * means[row]))
    found = list[Row]()
    for _, (first, *others) in groupby(ranked, key=lambda row: row.spec.group):
        if others and ahead[first] is not False and first.learnt is not False:
            gap = first.over(others[0], column)
            found += [first] if gap and gap.outcome(says_better=True) is Outcome.supported else []
    return found


def differences(
    columns: Sequence[ColumnSpec], rows: Sequence[Row], primary: tuple[Row, Row] | None = None, endpoint: str = ""
) -> list[Line]:
    """Every row over its group's baseline, and every ``ntl`` row over a control that differs in the loss alone.

    ``primary`` is (row it is against, row): it comes first, whatever the roles of its rows, and its effect in the
    metric ``endpoint`` is marked. Columns without a better end have no effects.
    """
    pairs, aside = dict.fromkeys([primary] if primary else []), {"loss", *NOT_COMPUTED_WITH}
    but_loss = [{key: pin for key, pin in row.pins.items() if key.split(".")[0] not in aside} for row in rows]
    settings = dict(zip(rows, but_loss, strict=True))
    for role, (base, row) in product((Role.baseline, Role.control), product(rows, rows)):
        other = base.spec.role is role and row is not base and row.overrides and row.spec.group == base.spec.group
        if other and (role is Role.baseline or (row.spec.role is Role.ntl and settings[row] == settings[base])):
            pairs[base, row] = None
    return [
        effect_line("difference", gap, base, row, primary=(base, row) == primary and column.metric == endpoint)
        for (base, row), column in product(pairs, columns)
        if column.better is not Better.neither and (gap := row.over(base, column))
    ]


def rows_by_label(groups: Sequence[str], block: BlockSpec, scale: str, rows: Sequence[Row]) -> list[dict[str, Row]]:
    """The rows of each group that a scale has, and all constant answers, by their labels."""
    part = block.scales[scale]
    names = [part.labels.get(group, group) for group in groups if not part.groups or group in part.groups]
    return [{row.spec.label: row for row in rows if row.spec.group == name or row.spec.constant} for name in names]


def read_by(label: str, metric: str) -> str:
    """``CE by expectation``."""
    reading = metric.partition("@")[2].replace("_", " ")
    return f"{label} by {reading}" if reading else label


def find_primary(
    spec: PrimarySpec, block: BlockSpec, scale: str, rows: Sequence[Row]
) -> tuple[tuple[Row, Row], Effect | None, str]:
    """The rows of the primary comparison, (row it is against, row), its effect, and one sentence on what it says."""
    columns, heuristics = {column.metric: column for column in block.columns}, block.scales[scale].heuristics
    endpoint, gate = columns[spec.metric], columns[spec.against_metric or spec.metric]
    groups, less = (rows_by_label(each, block, scale, rows) for each in (spec.groups, [spec.less] * bool(spec.less)))

    def over(of: Sequence[Mapping[str, Row]], base: str, other: str) -> tuple[list[Seeds], list[Seeds]]:
        return [each[spec.against].values[base] for each in of], [each[spec.row].values[other] for each in of]

    pairs = [(each[spec.against], each[spec.row]) for each in (*groups, *less)]
    taken = over(less, gate.metric, endpoint.metric) if less else ()
    found = effect(endpoint, *over(groups, gate.metric, endpoint.metric), spec.band, less=taken)
    first, second, header = spec.row, spec.against, endpoint.words
    if spec.against_metric:
        first, second = read_by(first, endpoint.metric), read_by(second, gate.metric)
        header = header.partition(", ")[0]
    within = "; ".join(dict.fromkeys(row.spec.group for _, row in pairs[: len(groups)]))
    if found is None:
        return pairs[0], None, f"No run of a common seed of {first} and {second} yet."
    outcome, heuristic = outcome_of(found, gate, [[*each.values()] for each in (*groups, *less)], heuristics)
    why = f"the baseline does not beat {heuristic}"
    if spec.assay and outcome is not Outcome.not_run:
        shown = effect(columns[spec.assay], *over(groups, spec.assay, spec.assay))
        if shown is None or shown.gain is None or shown.gain[0] <= 0:
            outcome, said = Outcome.not_testable, shown.short if shown else "no run"
            why = f"{spec.row} does not beat {spec.against} in {columns[spec.assay].words} ({said})"
    first, second, within = (f"{first} over {second}, {within},", spec.less, "") if less else (first, second, within)
    leads = {
        Outcome.not_run: f"Fewer than three seeds, so no interval: {first} against {second} in {header}",
        Outcome.not_testable: f"{first} against {second} is not testable in {header}: {why}",
        Outcome.equivalent: f"{first} and {second} are equivalent in {header}, within {100 * spec.band:.3g}%",
        Outcome.inconclusive: f"{first} and {second} do not differ significantly in {header}",
        Outcome.supported: f"{first} is better than {second} in {header}",
        Outcome.contradicted: f"{first} is worse than {second} in {header}",
    }
    after = found.power if outcome is Outcome.inconclusive else ""
    commits = [str(run.git.get("commit") or "") for pair in pairs for each in pair for run in each.records.values()]
    if seen := sum(commit.startswith(tuple(spec.seen)) for commit in commits):
        after += f"; named after {'these' if seen == len(commits) else f'{seen} of these {len(commits)}'} runs"
    return pairs[0], found, f"{leads[outcome]}{f' ({within})' if within else ''}: {found.text}{after}."
