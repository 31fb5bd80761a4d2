"""From the rows of a table to the runs they need, and from a record to the row it belongs to.

A record belongs to a row when its resolved config has every value that the row, its block and its scale pin, and when
its own command line set nothing else. A run that did set something else (say, another step count) still belongs if
the composed row has the run's id: the setting then only repeated what the config says. Where a command added
overrides to a table, or the run has code of the user's own, only that id decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import yaml

from ntl.config.folders import CONFIG_DIR
from ntl.config.identity import NOT_RECORDED
from ntl.config.yaml_files import check_plain, read_yaml
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, Role, RowSpec, ScaleSpec, TableSpec
from ntl.system.errors import UserError

# Settings that do not change what a run computes; the seed is matched separately. A second reading of a run adds
# metrics and changes none.
NOT_COMPUTED_WITH = {*NOT_RECORDED, "hydra", "seed", "beside"}

_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class RowPlan:
    """One row at one scale: the overrides of its runs (less the seed), and the values they pin.

    ``added`` are the overrides of a command line that change what a run computes; they pin nothing.
    """

    row: RowSpec
    overrides: tuple[str, ...]
    pins: Mapping[str, Any]
    seeds: tuple[int, ...]
    added: tuple[str, ...] = ()

    def run(self, seed: int) -> list[str]:
        return [*self.overrides, f"seed={seed}"]


def parse_value(text: str) -> Any:
    """The value of ``key=value`` as Hydra types it: 0.3, 1e-4, true, null, [1, 2], otherwise a string.

    UserError for a list, a mapping or a quoted string that is none.
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if text[:1] not in "[{'\"" or not text:
        return text
    try:
        check_plain(text, text[:40])
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise UserError(f"{text[:40]!r} is no value: {why}") from error


def override_key(override: str) -> str:
    """The key of an override, without Hydra's marks for added and deleted keys."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def _pins(overrides: Iterable[str], where: str) -> dict[str, Any]:
    pins: dict[str, Any] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or override_key(override) != key:
            raise UserError(f"{where}: the override {override!r} is not 'key=value'")
        if key in pins:
            raise UserError(f"{where}: {key} is set twice")
        try:
            pins[key] = parse_value(value)
        except UserError as error:
            raise UserError(f"{where}: {key}: {error}") from error
    return pins


def computing(overrides: Iterable[str]) -> tuple[str, ...]:
    """The overrides that change what a run computes, sorted; the others only set folders, tracking and the like."""
    return tuple(sorted(word for word in overrides if override_key(word).split(".")[0] not in NOT_RECORDED))


def plan_block(block: BlockSpec, scale: str, where: str, added: Sequence[str] = ()) -> list[RowPlan]:
    """The rows of a block at a scale, constants included (they have no overrides), with what a command ``added``.

    UserError where two rows could claim one run, that is where no key is pinned by both to different values.
    """
    part = block.scales.get(scale)
    if part is None:
        return []
    plans: list[RowPlan] = []
    for row in block.rows:
        named = replace(row, group=part.labels.get(row.group, row.group))
        if row.role is Role.constant:
            plans.append(RowPlan(named, (), {}, ()))
        elif not part.groups or row.group in part.groups:
            overrides = _row_overrides(block, part, row, scale)
            pins = _pins(overrides, f"{where}: {row.label}")
            seeds = tuple(seed for seed in part.seeds if seed in (row.seeds or part.seeds))
            plans.append(RowPlan(named, (*overrides, *added), pins, seeds, computing(added)))
    runs = [plan for plan in plans if plan.overrides]
    for index, first in enumerate(runs):
        for second in runs[index + 1 :]:
            shared = first.pins.keys() & second.pins.keys()
            if all(first.pins[key] == second.pins[key] for key in shared):
                raise UserError(
                    f"{where}: a run could belong to both rows {row_name(first.row)!r} and {row_name(second.row)!r}: "
                    "let them pin one key to different values"
                )
    return plans


def row_name(row: RowSpec) -> str:
    return f"{row.group}: {row.label}" if row.group else row.label


def _row_overrides(block: BlockSpec, part: ScaleSpec, row: RowSpec, scale: str) -> tuple[str, ...]:
    parts = [f"dataset={block.dataset}", f"scale={scale}", *block.overrides, *part.overrides, *row.overrides]
    return tuple(part.replace.get(override, override) for override in parts)


def plan_table(spec: TableSpec, scale: str) -> list[tuple[BlockSpec, list[RowPlan]]]:
    """Every block of a table that exists at a scale, with its rows. UserError where no block has that scale."""
    if scale not in spec.scales:
        raise UserError(f"table {spec.name!r} has no scale {scale!r}: choose from {', '.join(spec.scales)}")
    where = f"config/table/{spec.name}.yaml"
    return [(block, plan_block(block, scale, where, spec.added)) for block in spec.blocks if scale in block.scales]


def table_runs(spec: TableSpec, scale: str) -> list[list[str]]:
    """The overrides of every run that a table needs, each once; seeds vary slowest, so that all rows fill evenly."""
    runs: dict[tuple[str, ...], None] = {}
    for _, plans in plan_table(spec, scale):
        for seed in dict.fromkeys(seed for plan in plans for seed in plan.seeds):
            for plan in plans:
                if seed in plan.seeds:
                    runs[tuple(plan.run(seed))] = None
    return [list(run) for run in runs]


def missing_runs(spec: TableSpec, scale: str, records: Sequence[RunRecord]) -> list[list[str]]:
    """The runs of ``table_runs`` that have no record."""
    have: set[tuple[str, ...]] = set()
    for _, plans in plan_table(spec, scale):
        for plan in plans:
            have.update(tuple(plan.run(seed)) for seed in row_records(plan, records))
    return [run for run in table_runs(spec, scale) if tuple(run) not in have]


def lacking_readings(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The names in ``wanted`` (name -> settings of a decoding) that a record's config does not have beside its own.

    A setting that is younger than a record was off when the record was written: empty, 0 or false.
    """
    lacking = []
    for name, settings in wanted.items():
        recorded = config.get("beside", {}).get(name)
        off = {key: type(value)() for key, value in settings.items()}
        if recorded is None or off | recorded != settings:
            lacking.append(name)
    return lacking


@cache
def readings(choice: str) -> set[str]:
    """The names under which a choice of ``beside`` reads a run again; none for what is no choice."""
    path = CONFIG_DIR / "beside" / f"{choice}.yaml"
    found = read_yaml(path).get("defaults", []) if path.is_file() else []
    return {key.rpartition(".")[2] for entry in found for key in entry}


def _has_value(key: str, pinned: Any, config: Mapping[str, Any]) -> bool:
    if key == "base":  # given by overrides or by their id: only composing tells them apart
        return bool(pinned) == bool(config.get("base"))
    if key == "beside":
        return readings(pinned) <= config.get("beside", {}).keys()
    if key in NOT_RECORDED:
        return True
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return not pinned  # a setting that a record leaves out, or is younger than it, was off
        node = node[part]
    return _same(pinned, node)


def _same(pinned: Any, stored: Any) -> bool:
    # A group is pinned by its choice, which every group's config carries as its name.
    if isinstance(stored, Mapping) and isinstance(pinned, str):
        return stored.get("name") == pinned
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (pinned, stored)]
    return pinned == stored and (all(numbers) or type(pinned) is type(stored))


def _sets_more(record: RunRecord, plan: RowPlan) -> bool:
    """Whether the record has overrides that the row does not pin and that may change what is computed."""
    keys = {override_key(override) for override in record.overrides} - plan.pins.keys()
    return any(key.replace("/", ".").split(".")[0] not in NOT_COMPUTED_WITH for key in keys)


@cache
def _composed_id(overrides: tuple[str, ...]) -> str | None:
    # Imported here because composing costs Hydra's import and a tenth of a second, and few records ever need it.
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from ntl.config import compose, run_id

    try:
        return run_id(compose(overrides))
    except (UserError, HydraException, OmegaConfBaseException):
        return None


def leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(config, Mapping) or not config:
        return {prefix: config}
    return {
        key: value
        for name, node in config.items()
        for key, value in leaves(node, f"{prefix}.{name}" if prefix else str(name)).items()
    }


def row_records(plan: RowPlan, records: Sequence[RunRecord]) -> dict[int, RunRecord]:
    """The row's records by seed. Two records for one seed are a UserError that names both and where they differ."""
    found: dict[int, RunRecord] = {}
    for record in records:
        pins = plan.pins.items()
        if record.seed not in plan.seeds or not all(_has_value(key, value, record.config) for key, value in pins):
            continue
        exactly = plan.added or _sets_more(record, plan) or "base" in plan.pins
        if exactly and _composed_id(tuple(plan.run(record.seed))) != record.id:
            continue
        if (other := found.get(record.seed)) is not None:
            left, right = leaves(other.config), leaves(record.config)
            differing = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
            raise UserError(
                f"row {row_name(plan.row)!r}, seed {record.seed}: two records, {other.id} and {record.id}, differ in "
                f"{', '.join(differing[:3]) or 'nothing but their id'}: remove one"
            )
        found[record.seed] = record
    return found
