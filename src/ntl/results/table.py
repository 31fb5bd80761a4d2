"""A table computed from run records: rows, differences, a finding and warnings, and nothing of how it is written."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, product
from typing import Any

from ntl.config.folders import CONFIG_DIR, read_yaml
from ntl.evaluation.metrics import Better
from ntl.results.effects import Effect, Groups, Outcome, Seeds, beats, effect
from ntl.results.match import NOT_COMPUTED_WITH, Row, by_seed, computing, leaves, plan_table, row_records
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, ColumnSpec, PairSpec, PrimarySpec, Role, TableSpec, column_of, load_table_spec

MODELS: dict[str, str] = read_yaml(CONFIG_DIR / "model_names.yaml")
Line = dict[str, Any]  # of the CSV
Heuristics = Mapping[str, Mapping[str, float]]  # name -> metric -> score
Pair = tuple[Row, Row]  # the row that is compared with, and the one that is compared


@dataclass(frozen=True)
class Block:
    """One data set's part of a table.

    ``lines`` follow the cells in the CSV: differences and notes. ``warnings`` are also on the page.
    ``endpoint`` is the column of the primary comparison, or the block's first.
    """

    spec: BlockSpec
    rows: list[Row]
    lines: list[Line]
    warnings: list[str]
    endpoint: ColumnSpec

    def is_unlearnt(self, row: Row) -> bool:
        """Whether the mean is no better than the best constant answer's, at the endpoint."""
        sign, mean = self.endpoint.better.value, row.summary(self.endpoint.metric).mean
        constants = [constant.summary(self.endpoint.metric).mean for constant in self.rows if constant.is_heuristic]
        best = max((sign * value for value in constants if value is not None), default=-math.inf)
        return bool(row.overrides and sign and mean is not None and sign * mean <= best)

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

    ``primary`` is the effect that the table is made for, and ``outcome`` what it says; None without a run of a common
    seed.
    """

    spec: TableSpec = field(repr=False)
    scale: str
    title: str
    blocks: list[Block] = field(repr=False)
    finding: str
    primary: Effect | None
    outcome: Outcome

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
        return f"{self.spec.name}_{self.scale}{mark}"

    @property
    def rows(self) -> list[Row]:
        return [row for block in self.blocks for row in block.rows]

    @property
    def num_records(self) -> int:
        return sum(len(row.records) for row in self.rows)


def build_table(spec: str | TableSpec, records: Sequence[RunRecord], scale: str = "tiny") -> Table:
    """Compute a table of ``config/table`` (by name or as a loaded spec) from records alone.

    UserError: no such table or scale, two records for one seed of a row.
    """
    spec = load_table_spec(spec) if isinstance(spec, str) else spec
    plans, wanted, blocks = plan_table(spec, scale), spec.primary_of(scale), list[Block]()
    primary, outcome, finding = None, Outcome.not_run, ""
    for block, rows in plans:
        _fill(rows, block.columns, records)
        pair, lines, endpoint = None, list[Line](), block.columns[0]
        if block is spec.blocks[wanted.block]:
            endpoint = column_of(block, wanted.metric, spec.name)
            pair, primary, outcome, finding = find_primary(wanted, block, scale, rows)
            if primary and (wanted.against_metric or wanted.less or wanted.groups[1:]):  # none of the other differences
                lines.append(effect_line(primary, *pair, primary=True))
                pair = None
        warned = [*warnings(block, scale, rows, computing(spec.added))]
        lines += differences(block.columns, rows, pair, wanted.metric)
        lines += [{"kind": "note", "text": text} for text in (*warned, " ".join(block.note.split())) if text]
        shown = [row for row in rows if not row.spec.constant or any(row.values.values())]
        blocks.append(Block(block, shown, lines, warned, endpoint))
    title = heading(spec, [row for _, rows in plans for row in rows])
    return Table(spec, scale, title, blocks, finding, primary, outcome)


def _fill(rows: Sequence[Row], columns: Sequence[ColumnSpec], records: Sequence[RunRecord]) -> None:
    for row in rows:
        row.records = row_records(row, records)
    every = [record for row in rows for record in row.records.values()]
    readings = frozenset[str]().union(*(row.readings for row in rows))
    for row, column in product(rows, columns):
        # A constant answer does not depend on the decoding; another parse rule may read it differently.
        name, _, reading = column.metric.partition("@")
        key = f"{name if reading in readings else column.metric}:{row.spec.constant}"
        values = constant_values(key, every) if row.spec.constant else by_seed(column.metric, row.records)
        row.values[column.metric] = values


def constant_values(key: str, records: Sequence[RunRecord]) -> Seeds:
    """The score of a constant answer, which all records of the same data share.

    Records of different test data have scores of their own; each is listed once.
    """
    scores = dict[tuple[frozenset[Any], float | None], None]()
    for record in (record for record in records if key in record.metrics):
        files = record.data.get("files", {}).items()
        test_files = frozenset(file for file in files if not file[0].startswith(("train", "validation")))
        scores[test_files, record.value(key)] = None
    return dict(enumerate(sorted((score for _, score in scores), key=lambda score: (score is None, score or 0.0))))


# ---- comparisons


def effect_line(gap: Effect, base: Row, row: Row, primary: bool) -> Line:
    """A line of the CSV on the effect of a row over a base."""
    names = {"group": row.spec.group, "row": row.spec.label, "against": base.spec.label, "metric": gap.column.metric}
    measure = "log ratio" if gap.ratio else "difference"
    about = {"kind": "difference", **names, "measure": measure, "primary": primary, "text": gap.text}
    return about | {"n": gap.summary.n} | asdict(gap.summary)


def differences(
    columns: Sequence[ColumnSpec], rows: Sequence[Row], primary: Pair | None = None, endpoint: str = ""
) -> list[Line]:
    """Every row over its group's baseline, and every ``ntl`` row over a control that differs in the loss alone.

    ``primary`` comes first, whatever the roles of its rows, and its effect in the metric ``endpoint`` is marked.
    Columns without a better end have no effects.
    """
    pairs, aside = dict.fromkeys([primary] if primary else []), {"loss", *NOT_COMPUTED_WITH}
    but_loss = [{key: pin for key, pin in row.pins.items() if key.split(".")[0] not in aside} for row in rows]
    settings = dict(zip(rows, but_loss, strict=True))
    for role, (base, row) in product((Role.baseline, Role.control), product(rows, rows)):
        is_pair = base.spec.role is role and row is not base and row.overrides and row.spec.group == base.spec.group
        if is_pair and (role is Role.baseline or (row.spec.role is Role.ntl and settings[row] == settings[base])):
            pairs[base, row] = None
    lines, scored = list[Line](), [column for column in columns if column.better is not Better.neither]
    for (base, row), column in product(pairs, scored):
        if gap := effect(column, [base.scores(column.metric)], [row.scores(column.metric)]):
            lines.append(effect_line(gap, base, row, (base, row) == primary and column.metric == endpoint))
    return lines


def rows_by_label(groups: Sequence[str], block: BlockSpec, scale: str, rows: Sequence[Row]) -> list[dict[str, Row]]:
    """The rows of each group that a scale has, and all constant answers, by their labels."""
    part = block.scales[scale]
    names = [part.labels.get(group, group) for group in groups if not part.groups or group in part.groups]
    return [{row.spec.label: row for row in rows if row.spec.group == name or row.spec.constant} for name in names]


def sides(base: str, other: str, pairs: Sequence[Sequence[Mapping[int, RunRecord]]]) -> tuple[Groups, Groups]:
    """The values of pairs of records by seed: the first ones' in the metric ``base``, the second ones' in ``other``."""
    return [by_seed(base, first) for first, _ in pairs], [by_seed(other, second) for _, second in pairs]


def read_by(label: str, metric: str) -> str:
    """``CE by expectation``."""
    reading = metric.partition("@")[2].replace("_", " ")
    return f"{label} by {reading}" if reading else label


def outcome_of(
    gap: Effect, gate: ColumnSpec, groups: Sequence[Mapping[str, Row]], more: Heuristics, says_better: bool = True
) -> tuple[Outcome, str]:
    """What an effect says of a claim, and why where that is "not testable": the best heuristic, with its score.

    Heuristics need no learning: the constant answers among the rows, and ``more``. Only the baselines of the groups
    have to beat them, in the column ``gate`` or, where none is scored there, in the first that ``more`` is scored in:
    an arm that learns nothing is a result. Two seeds have no interval.
    """
    if 0 < gap.summary.n < 3:
        return Outcome.not_run, ""
    constants = {row.spec.label: row.scores(gate.metric) for row in groups[0].values() if row.is_heuristic}
    known = [(name, value) for name, values in constants.items() for value in values.values() if value is not None]
    others = [metric for scores in more.values() for metric in scores]
    if not known and others and gate.metric not in others:
        gate = ColumnSpec(others[0])
    known += [(name, scores[gate.metric]) for name, scores in more.items() if gate.metric in scores]
    best = max(known, key=lambda item: gate.better.value * item[1], default=None)
    baselines = [row for rows in groups for row in rows.values() if row.spec.role is Role.baseline]
    base = [by_seed(gate.metric, row.records) for row in baselines]
    if best is None or not base or beats(gate, base, best[1]):
        return gap.outcome(says_better), ""
    return Outcome.not_testable, f"the baseline does not beat {best[0]} ({format(best[1], gate.format)})"


def lacking(pair: PairSpec, assay: ColumnSpec, pairs: Sequence[Sequence[Mapping[int, RunRecord]]]) -> str:
    """That the row of a pair does not beat the other in ``assay``; empty where it does."""
    shown = effect(assay, *sides(assay.metric, assay.metric, pairs))
    if shown and shown.gain and shown.gain[0] > 0:
        return ""
    return f"{pair.row} does not beat {pair.against} in {assay.words} ({shown.short if shown else 'no run'})"


def find_primary(
    spec: PrimarySpec, block: BlockSpec, scale: str, rows: Sequence[Row]
) -> tuple[Pair, Effect | None, Outcome, str]:
    """The rows of the primary comparison, its effect, and what it says, also in one sentence."""
    endpoint, gate, assay = (
        column_of(block, metric or spec.metric, scale) for metric in (spec.metric, spec.against_metric, spec.assay)
    )
    groups, less = (rows_by_label(names, block, scale, rows) for names in (spec.groups, [spec.less] * bool(spec.less)))
    pairs, taken = ([(group[spec.against], group[spec.row]) for group in part] for part in (groups, less))
    runs, others = ([(base.records, row.records) for base, row in part] for part in (pairs, taken))
    subtracted = sides(gate.metric, endpoint.metric, others) if less else ()
    gap = effect(endpoint, *sides(gate.metric, endpoint.metric, runs), spec.band, subtracted)
    first, second, header = spec.row, spec.against, endpoint.words
    if spec.against_metric:
        first, second = read_by(first, endpoint.metric), read_by(second, gate.metric)
        header = header.partition(", ")[0]
    if gap is None:
        return pairs[0], None, Outcome.not_run, f"No run of a common seed of {first} and {second} yet."
    outcome, why = outcome_of(gap, gate, [*groups, *less], block.scales[scale].heuristics)
    if spec.assay and outcome is not Outcome.not_run and (missing := lacking(spec, assay, runs)):
        outcome, why = Outcome.not_testable, missing
    within = "; ".join(dict.fromkeys(row.spec.group for _, row in pairs))
    if less:
        first, second, within = f"{first} over {second}, {within},", spec.less, ""
    leads = {
        Outcome.not_run: f"Fewer than three seeds, so no interval: {first} against {second} in {header}",
        Outcome.not_testable: f"{first} against {second} is not testable in {header}: {why}",
        Outcome.equivalent: f"{first} and {second} are equivalent in {header}, within {100 * spec.band:.3g}%",
        Outcome.inconclusive: f"{first} and {second} do not differ significantly in {header}",
        Outcome.supported: f"{first} is better than {second} in {header}",
        Outcome.contradicted: f"{first} is worse than {second} in {header}",
    }
    after = gap.power if outcome is Outcome.inconclusive else ""
    every = [run for pair in (*runs, *others) for side in pair for run in side.values()]
    if seen := sum(str(run.git.get("commit") or "").startswith(tuple(spec.seen)) for run in every):
        after += f"; named after {'these' if seen == len(every) else f'{seen} of these {len(every)}'} runs"
    return pairs[0], gap, outcome, f"{leads[outcome]}{f' ({within})' if within else ''}: {gap.text}{after}."


# ---- words that go with it


def model_name(model: str) -> str:
    """What a model of ``config/model`` is called in a text."""
    return MODELS.get(model.removesuffix("_regression"), model)


def heading(spec: TableSpec, rows: Iterable[Row]) -> str:
    """``Table 2 with a tiny GPT-2 in place of T5-Small: loss variants``; ``Table 2: loss variants, T5-Small`` without.

    The title says so where a model with published weights is trained from scratch.
    """
    ran, took, own = {}, {}, {}
    for row in (row for row in rows if row.place):
        name = model_name(row.pins["model"]) + " from scratch" * (row.pins.get("model.pretrained") == "false")
        (ran if row.stand_in else own)[name] = None
        took |= {model_name(row.place): None} if row.stand_in else {}
    what, colon, subject = spec.title.partition(": ")
    if took:
        return f"{what} with {_listed(ran)} in place of {_listed(took)}{colon}{subject}"
    return f"{spec.title}, {_listed(own)}" if own else spec.title


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def warnings(block: BlockSpec, scale: str, rows: Sequence[Row], added: Sequence[str] = ()) -> Iterator[str]:
    """What the scale changes, settings and data that make rows unequal, and records of an unknown source."""
    records = [record for row in rows for record in row.records.values()]
    if added:
        yield f"Not the table as described: every run of it was made with {', '.join(added)}."
    if note := block.scales[scale].note:
        yield " ".join(note.split())
    if differing := _differing(rows, records):
        yield f"Not a fair comparison: the runs also differ in {', '.join(differing)}."
    # Rounding differs between processors, and can decide what a seed learns; a pair should not mix them.
    devices = _sets(((row.spec.group, seed), record.device) for row in rows for seed, record in row.records.items())
    if mixed := sorted({seed for (_, seed), kinds in devices.items() if len(kinds) > 1}):
        which = f"seed{'s' * (len(mixed) > 1)} {_listed(map(str, mixed))}"
        yield f"Not all rows of {which} ran on the same kind of processor."
    # What was measured on the data is no part of it, and not every record has it.
    data = [(run.config.get("dataset"), {**run.data, "longer_than_train": None}) for run in records if run.data]
    read = _sets((json.dumps(settings, sort_keys=True), json.dumps(of, sort_keys=True)) for settings, of in data)
    if (most := max(map(len, read.values()), default=0)) > 1:
        yield f"Not a fair comparison: the runs read {most} different versions of the data."
    # Versions 2 and 3 differ only where a text has several ####, which no published one of 2 has.
    rules = {str({rule: 3 if v == 2 else v for rule, v in record.rules.items()}) for record in records}
    if len({text.replace("'default': 4", "'default': 3") for text in rules}) > 1:
        yield f"Not a fair comparison: {len(rules)} versions of the rules read the answers."
    elif len(rules) > 1:
        yield "Two versions of the rules read the answers: numerals alike, fractions and other notations not."
    if dirty := sum(bool(record.git.get("dirty")) for record in records):
        yield f"{dirty} of the {len(records)} records are of a source with uncommitted changes."
    shares = _sets(pair for record in records for pair in record.data.get("longer_than_train", {}).items())
    ends = {split: sorted({min(values), max(values)}) for split, values in shares.items() if max(values) > 0}
    if parts := [f"{split} {' to '.join(f'{share:.0%}' for share in values)}" for split, values in ends.items()]:
        yield f"Test examples with more tokens than any that was trained on: {', '.join(parts)}."


def _sets(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, set[Any]]:
    sets: dict[Any, set[Any]] = {}
    for key, value in pairs:
        sets.setdefault(key, set()).add(value)
    return sets


def _differing(rows: Sequence[Row], records: Sequence[RunRecord]) -> list[str]:
    # What the rows vary on purpose: a key, or a whole group, that they pin to different values.
    pins = _sets((key, row.pins.get(key)) for key in {*chain(*(row.pins for row in rows))} for row in rows if row.pins)
    varied = {key for key, pinned in pins.items() if len(pinned) > 1}
    values = list[tuple[tuple[str, int, str], str]]()
    for record in records:
        loss, objective = (record.config.get(group, {}).get("name") for group in ("loss", "objective"))
        source = loss if loss == objective else record.config.get("model", {}).get("head", "lm")
        for key, value in leaves(record.config).items():
            group = key.split(".")[0]
            if group not in NOT_COMPUTED_WITH and not {key, group} & varied:
                # The seed may draw the data, and name base and tokenizer, too: rows are then compared seed by seed.
                # What comes with a model's head, or with a loss that is an objective, is compared among runs with it.
                seed = record.seed if key in ("base", "tokenizer.path") or key.endswith(".seed") else 0
                place = key, seed, source if group in ("objective", "decoding") else ""
                values.append((place, json.dumps(value)))
    return sorted({key for (key, *_), texts in _sets(values).items() if len(texts) > 1})
