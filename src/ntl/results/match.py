"""From the rows of a table to the runs they need, and to the records of these runs, by their settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ntl.config.decoding import DecodingConfig
from ntl.config.identity import COMPUTED, NOT_RECORDED, plain, recorded
from ntl.config.kinds import loss_choice
from ntl.config.root import Config
from ntl.config.trainer import DERIVED, LOSS
from ntl.evaluation.metrics import REFERENCES
from ntl.results.effects import LEVEL, Effect, Seeds, Summary, effect, summarize
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, ColumnSpec, Role, RowSpec, TableSpec
from ntl.system.errors import UserError

# Settings that do not change what a run computes; the seed is matched separately. A second reading of a run adds
# metrics and changes none.
NOT_COMPUTED_WITH = {*NOT_RECORDED, "hydra", "seed", "beside"}
CHOSEN = ("dataset", "scale", "loss", "model", "tokenizer")  # groups whose choice a record's config has as their name
ANY_SEED = 2**31 - 1  # composed in place of a row's seeds


@dataclass(eq=False)
class Row:
    """One row at one scale: the overrides of its runs (less the seed), what they give each key, and the runs' records.

    ``added`` are the overrides of a command line that change what a run computes; they are not among ``pins``.
    ``place`` is the model that the table asks for, in whose place that of the pins may be trained at this scale.
    ``values``: metric -> seed -> value; a constant row has the scores of its answer. ``learnt`` is False where the mean
    is no better than that of the best constant answer, at the table's endpoint. ``best``: the metrics in which it is
    the best of its group.
    """

    spec: RowSpec
    overrides: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    added: tuple[str, ...] = ()
    place: str = ""
    records: dict[int, RunRecord] = field(default_factory=dict)
    values: dict[str, Seeds] = field(default_factory=dict)
    learnt: bool | None = None
    best: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.spec.group}: {self.spec.label}" if self.spec.group else self.spec.label

    @property
    def stand_in(self) -> bool:
        return self.place != self.pins.get("model", "")

    @property
    def is_heuristic(self) -> bool:
        """Whether it is a constant answer. A rule that is wrong in a known way and a ridge regression need learning."""
        return self.spec.role is Role.constant and self.spec.constant not in REFERENCES

    @property
    def missing(self) -> list[int]:
        """The seeds without a record."""
        return [seed for seed in self.seeds if seed not in self.records]

    def summary(self, column: ColumnSpec) -> Summary:
        """Of the records that have the metric; ``n`` and ``undefined`` are 0 where none has."""
        return summarize(list(self.values[column.metric].values()))

    def over(self, base: "Row", column: ColumnSpec, level: float = LEVEL) -> Effect | None:
        """The effect in a column over the seeds of both, None where they share none."""
        return effect(column, [base.values[column.metric]], [self.values[column.metric]], level=level)


def by_seed(metric: str, records: Mapping[int, RunRecord]) -> Seeds:
    """A metric in the records that have it, by seed; None where it is undefined."""
    return {seed: record.value(metric) for seed, record in sorted(records.items()) if record.has(metric)}


def override_key(override: str) -> str:
    """The key of an override, without Hydra's marks for added and deleted keys."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def _pins(overrides: Iterable[str], where: str) -> dict[str, str]:
    pins: dict[str, str] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or override_key(override) != key:
            raise UserError(f"{where}: the override {override!r} is not 'key=value'")
        if key in pins:
            raise UserError(f"{where}: {key} is set twice")
        pins[key] = loss_choice(value) if key == "loss" else value
    return pins


def computing(overrides: Iterable[str]) -> tuple[str, ...]:
    """The overrides that change what a run computes, sorted; the others only set folders, tracking and the like."""
    return tuple(sorted(word for word in overrides if override_key(word).split(".")[0] not in NOT_RECORDED))


def plan_block(block: BlockSpec, scale: str, where: str, added: Sequence[str] = ()) -> list[Row]:
    """The rows of a block at a scale, constants included (they have no overrides), with what a command ``added``."""
    if (part := block.scales.get(scale)) is None:
        return []
    rows = list[Row]()
    for spec in block.rows:
        named = replace(spec, group=part.labels.get(spec.group, spec.group))
        if spec.role is Role.constant:
            rows.append(Row(named))
        elif not part.groups or spec.group in part.groups:
            words = [f"dataset={block.dataset}", f"scale={scale}", *block.overrides, *part.overrides, *spec.overrides]
            place = next((word.removeprefix("model=") for word in words if word.startswith("model=")), "")
            words = [part.replace.get(word, word) for word in words]
            seeds = tuple(seed for seed in part.seeds if seed in (spec.seeds or part.seeds))
            pins = _pins(words, f"{where}: {spec.label}")
            rows.append(Row(named, (*words, *added), pins, seeds, computing(added), place))
    return rows


def plan_table(spec: TableSpec, scale: str) -> list[tuple[BlockSpec, list[Row]]]:
    """Every block of a table that exists at a scale, with its rows. UserError where no block has that scale."""
    if scale not in spec.scales:
        raise UserError(f"table {spec.name!r} has no scale {scale!r}: choose from {', '.join(spec.scales)}")
    where = f"config/table/{spec.name}.yaml"
    return [(block, plan_block(block, scale, where, spec.added)) for block in spec.blocks if scale in block.scales]


def table_runs(spec: TableSpec, scale: str, records: Sequence[RunRecord] = ()) -> list[list[str]]:
    """The overrides of every run that a table needs and that has no record, each once.

    Seeds vary slowest, so that all rows fill evenly.
    """
    runs: dict[tuple[str, ...], None] = {}
    for _, rows in plan_table(spec, scale):
        lacking = [(row, {*row.seeds} - row_records(row, records).keys()) for row in rows]
        for seed in dict.fromkeys(seed for row in rows for seed in row.seeds):
            runs |= dict.fromkeys((*row.overrides, f"seed={seed}") for row, seeds in lacking if seed in seeds)
    return [list(run) for run in runs]


def lacking_readings(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The names in ``wanted`` (name -> settings of a decoding) that a record's config does not have beside its own.

    A setting that is younger than a record had its default then, or was off: empty, 0 or false.
    """
    have, usual = config.get("beside", {}), vars(DecodingConfig())
    off = {name: {key: usual.get(key, type(value)()) for key, value in of.items()} for name, of in wanted.items()}
    return [name for name in wanted if name not in have or off[name] | have[name] != wanted[name]]


def leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(config, Mapping) or not config:
        return {prefix: config}
    return {
        key: value
        for name, node in config.items()
        for key, value in leaves(node, f"{prefix}.{name}" if prefix else str(name)).items()
    }


@cache
def _composed(overrides: tuple[str, ...]) -> Config:
    from ntl.config.composition import compose  # here, since it costs Hydra's import, and there may be no record

    return compose(overrides)


def identity_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Of a record's config: dotted key -> value of each setting that decides the result."""
    trainer = values.get("trainer", {})
    groups = [*COMPUTED, "base", *(["decoding"] if trainer.get("best", "") not in ("", LOSS) else [])]
    idle = {f"trainer.{steps}" for given, steps in DERIVED.items() if trainer.get(given)}
    idle |= {"model.file", "decoding.interval_rows", "decoding.interval_scale"}
    return {key: each for key, each in leaves({g: values.get(g, "") for g in groups}).items() if key not in idle}


@cache
def _of_seed(overrides: tuple[str, ...], seed: int) -> tuple[Config, dict[str, Any], dict[str, Any]]:
    """The config of a row's run, its ``identity_fields`` and their defaults. Seeds share a composition without base."""
    if any(word.startswith("base=") for word in overrides):
        config = _composed((*overrides, f"seed={seed}"))
    else:
        config = replace(_composed((*overrides, f"seed={ANY_SEED}")), seed=seed)
        if getattr(config.dataset, "seed", None) == ANY_SEED:  # the run's seed draws the data
            config = replace(config, dataset=replace(config.dataset, seed=seed))
    usual = {group: plain(type(getattr(config, group))()) for group in (*COMPUTED, "decoding")}
    return config, identity_fields(recorded(config)), leaves(usual)


def _is_run(record: RunRecord, row: Row) -> bool:
    # Without what changes no result, and in one order: rows then share what they have in common.
    beside = tuple(word for word in row.overrides if word.startswith("beside"))
    words = [word for word in computing(row.overrides) if word not in beside]
    words += [word for word in row.overrides if word.startswith("data_dir=")]
    config, now, usual = _of_seed(tuple(words), record.seed)
    paths, typed = {"model.path", "tokenizer.path"}, map(override_key, (*row.overrides, *record.overrides))
    keys = now.keys() - (paths if config.model.pretrained and paths.isdisjoint(typed) else set())
    then = identity_fields(record.config)
    # A setting that is younger than a record had its default then.
    same = then.keys() <= now.keys() and all(now[key] == then.get(key, usual.get(key)) for key in keys)
    decoded = record.config.get("decoding", {}).get("name") == config.decoding.name
    wanted = plain(config.beside) | (plain(_composed(beside).beside) if beside else {})
    return same and decoded and not lacking_readings(record.config, wanted)


def row_records(row: Row, records: Sequence[RunRecord]) -> dict[int, RunRecord]:
    """The records of a row's runs by seed: those with the settings of the composed row, which were decoded as it says.

    Composition adds the local folder of published weights (``model.path``), whose content is a setting, where there is
    one. A row that says no path is the run of these weights wherever they lie. UserError: two records for one seed.
    """
    found, groups = dict[int, RunRecord](), [group for group in CHOSEN if group in row.pins]
    for record in records:
        # Nothing is composed for a row without records.
        chosen = all(record.config.get(group, {}).get("name") == row.pins[group] for group in groups)
        if record.seed in row.seeds and chosen and _is_run(record, row):
            if other := found.get(record.seed):
                where = f"row {row.name!r}, seed {record.seed}"
                raise UserError(f"{where}: two records, {other.id} and {record.id}: remove one")
            found[record.seed] = record
    return dict(sorted(found.items()))


def replications(pair: Sequence[Row], records: Sequence[RunRecord]) -> list[dict[int, RunRecord]]:
    """The records of two rows' configurations by the seeds that other tables ran, both on one kind of processor."""
    every, found = {record.seed for record in records}, list[dict[int, RunRecord]]()
    for row in pair:
        words = tuple(word for word in row.overrides if not word.startswith("beside"))
        found.append(row_records(replace(row, overrides=words, seeds=(*every.difference(row.seeds),)), records))
    base, other = found
    same = {seed for seed in base.keys() & other.keys() if base[seed].device == other[seed].device}
    return [{seed: run for seed, run in side.items() if seed in same} for side in found]
