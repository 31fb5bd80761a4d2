"""From the rows of a table to the runs they need, and to the records of these runs, by their overrides."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ntl.config.decoding import DecodingConfig
from ntl.config.folders import choices, renamed
from ntl.config.identity import NOT_RECORDED
from ntl.config.loss import loss_choice
from ntl.evaluation.metrics import REFERENCES
from ntl.results.effects import Seeds, Summary, summarize
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, Role, RowSpec, TableSpec
from ntl.system.errors import UserError

# Settings that do not change what a run computes; the seed is matched separately. An extra decoding of a run
# adds metrics and changes none.
NOT_COMPUTED_WITH = {*NOT_RECORDED, "hydra", "seed", "extra_decodings"}
# They save memory and leave the gradient as it is: a run with them fills the same row of the same table.
SAVE_MEMORY = ("trainer.gradient_checkpointing", "trainer.max_tokens_per_batch")


@dataclass(eq=False)
class Row:
    """One row at one scale: the overrides of its runs (less the seed), what they give each key, and the runs' records.

    ``pins`` lack what a command line added. ``readings``: the extra decodings that its columns print.
    ``place`` is the model that the table asks for; the model of the pins may be trained in its place at this scale.
    ``values``: metric -> seed -> value; a constant row has the scores of its answer.
    """

    spec: RowSpec
    overrides: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    readings: frozenset[str] = frozenset()
    place: str = ""
    records: dict[int, RunRecord] = field(default_factory=dict)
    values: dict[str, Seeds] = field(default_factory=dict)

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

    def scores(self, metric: str) -> Seeds:
        """One of the ``values``; also of a reading that has no column."""
        return self.values.get(metric) or by_seed(metric, self.records)

    def summary(self, metric: str) -> Summary:
        """Of the records that have the metric; ``n`` and ``undefined`` are 0 where none has."""
        return summarize([*self.scores(metric).values()])


def by_seed(metric: str, records: Mapping[int, RunRecord]) -> Seeds:
    """A metric in the records that have it, by seed; None where it is undefined."""
    return {seed: record.value(metric) for seed, record in sorted(records.items()) if record.has(metric)}


def override_key(override: str) -> str:
    """The key of an override, without Hydra's marks for added and deleted keys."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def computing(overrides: Iterable[str], aside: Container[str] = NOT_RECORDED) -> tuple[str, ...]:
    """The overrides that change what a run computes, sorted, without the groups ``aside``."""
    words = ((word, override_key(word)) for word in overrides)
    return tuple(sorted(word for word, key in words if key not in SAVE_MEMORY and key.split(".")[0] not in aside))


@cache
def matched_words(overrides: tuple[str, ...]) -> frozenset[str]:
    """The overrides by which the record of a run is found, less what changes no result."""
    kept = computing(overrides, NOT_COMPUTED_WITH)
    return frozenset(f"loss={loss_choice(word[5:])}" if word.startswith("loss=") else word for word in kept)


def plan_block(block: BlockSpec, scale: str, added: Sequence[str] = ()) -> list[Row]:
    """The rows of a block at a scale, constants included (they have no overrides), with what a command ``added``."""
    if (part := block.scales.get(scale)) is None:
        return []
    endings = (column.metric.partition("@")[2] for column in block.columns)
    readings = frozenset(endings).intersection(choices("extra_decodings"))
    rows = list[Row]()
    for spec in block.rows:
        named = replace(spec, group=part.labels.get(spec.group, spec.group))
        if spec.role is Role.constant:
            rows.append(Row(named))
        elif not part.groups or spec.group in part.groups:
            words = [f"dataset={block.dataset}", f"scale={scale}", *block.overrides, *part.overrides, *spec.overrides]
            place = next((word.removeprefix("model=") for word in words if word.startswith("model=")), "")
            words = [renamed(part.replace.get(word, word)) for word in words]
            pins = {key: value for key, _, value in (word.partition("=") for word in words)}
            seeds = tuple(seed for seed in part.seeds if seed in (spec.seeds or part.seeds))
            wanted = readings if "extra_decodings" in pins else frozenset()
            rows.append(Row(named, (*words, *added), pins, seeds, wanted, place))
    return rows


def plan_table(spec: TableSpec, scale: str) -> list[tuple[BlockSpec, list[Row]]]:
    """Every block of a table that exists at a scale, with its rows. UserError where no block has that scale."""
    if scale not in spec.scales:
        raise UserError(f"table {spec.name!r} has no scale {scale!r}: choose from {', '.join(spec.scales)}")
    return [(block, plan_block(block, scale, spec.added)) for block in spec.blocks if scale in block.scales]


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


def missing_decodings(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The names in ``wanted`` (name -> settings of a decoding) that a config lacks among its extra decodings."""
    have = config.get("extra_decodings", {})
    return [name for name, of in wanted.items() if name not in have or as_decoded(have[name], of) != of]


def as_decoded(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A record's settings of a decoding: one that is younger had its default then, or was off: empty, 0 or false."""
    usual = vars(DecodingConfig())
    return {key: usual.get(key, type(value)()) for key, value in wanted.items()} | dict(stored)


def leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """The values of nested settings by their keys, such as ``trainer.lr``."""
    if not isinstance(config, Mapping) or not config:
        return {prefix: config}
    below = (leaves(node, f"{prefix}.{name}".lstrip(".")) for name, node in config.items())
    return {key: value for part in below for key, value in part.items()}


def row_records(row: Row, records: Sequence[RunRecord]) -> dict[int, RunRecord]:
    """The records of a row's runs by seed: those with its overrides, less what changes no result, and its readings.

    A setting that only one of them spells out, were it the default, makes another run. UserError: two records for one
    seed.
    """
    matched, wanted = dict[int, RunRecord](), matched_words(row.overrides)
    for record in records:
        same = record.seed in row.seeds and matched_words(tuple(record.overrides)) == wanted
        if same and row.readings <= record.config.get("extra_decodings", {}).keys():
            if other := matched.get(record.seed):
                where = f"row {row.name!r}, seed {record.seed}"
                raise UserError(f"{where}: two records, {other.id} and {record.id}: remove one")
            matched[record.seed] = record
    return dict(sorted(matched.items()))
