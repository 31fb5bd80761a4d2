"""What tables ask for: their runs, each once by its id, and which of these have no record yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ntl.config import compose, run_id
from ntl.config.composition import base_words
from ntl.config.root import Config
from ntl.launch.plan import Run, plan_runs
from ntl.launch.settings import load
from ntl.results import RunRecord, missing_runs, table_runs
from ntl.results.match import RowPlan, override_key, plan_table, row_name
from ntl.results.spec import TableSpec
from ntl.system.errors import UserError

# What is of one model, and of no other: its weights, its tokenizer.
OF_ONE_MODEL = ("model.path", "model.hub_id", "model.tokenizer_hub_id", "tokenizer.path")
NAMED = 3  # so many rows at most are named in one line


@dataclass(frozen=True)
class Demand:
    """One table at one scale. ``runs``: id -> config; ``lacking``: overrides of what has no record -> id.

    Both have the runs that others begin from, too.
    """

    spec: TableSpec
    scale: str
    runs: dict[str, Config]
    lacking: dict[tuple[str, ...], str]


def demands(
    tables: Sequence[str],
    scale: str,
    records: Sequence[RunRecord],
    skip: Callable[[str], None] = print,
    overrides: Sequence[str] = (),
) -> list[Demand]:
    """What each table needs, its runs made with ``overrides``; one that lacks the scale is told to ``skip``.

    UserError where no table has the scale, for an override of what a row pins, for one model's files where rows have
    several models, and for a folder that holds no model.
    """
    specs = [load(name) for name in tables]
    having = [spec for spec in specs if scale in spec.scales]
    if not having:
        scales = dict.fromkeys(each for spec in specs for each in spec.scales)
        raise UserError(f"{', '.join(tables)}: nothing at scale={scale}; choose from {', '.join(scales)}.")
    for spec in specs:
        if scale not in spec.scales:
            skip(f"{spec.name}: nothing at scale={scale}, skipped; it has {', '.join(spec.scales)}.")
    _check(having, scale, overrides)
    demanded = [_demand(replace(spec, added=list(overrides)), scale, records) for spec in having]
    configs = [config for demand in demanded for config in demand.runs.values()]
    for override in overrides:
        if override_key(override) == "model.hub_id" and not any(config.model.pretrained for config in configs):
            skip(f"{override}: its tokenizer alone is read, not its weights: these runs have model.pretrained=false.")
    return demanded


def _check(specs: Sequence[TableSpec], scale: str, overrides: Sequence[str]) -> None:
    by_table = {
        spec.name: [plan for _, plans in plan_table(spec, scale) for plan in plans if plan.overrides] for spec in specs
    }
    for override in overrides:
        key = override_key(override)
        for name, plans in by_table.items():
            if pinning := [plan for plan in plans if any(_is_part(key, pin) for pin in plan.pins)]:
                raise UserError(
                    f"{override}: {name} sets {key} itself, {_rows(pinning, plans)}; leave it out, or write a table of "
                    "your own, table=FILE.yaml."
                )
        # A row that pins none has the default one.
        models = dict.fromkeys(str(plan.pins.get("model", "model=")) for plans in by_table.values() for plan in plans)
        if key in OF_ONE_MODEL and len(models) > 1:
            raise UserError(
                f"{override}: one model's files, and the rows have {len(models)} ({', '.join(models)}); choose tables "
                "whose rows have one, or write such a table of your own, table=FILE.yaml."
            )


def _is_part(key: str, pin: str) -> bool:
    """Whether an override of ``key`` would change what ``pin`` says. The values below a group are open."""
    if "." not in pin:
        return key in (pin, f"{pin}.name", f"{pin}._target_")
    return key == pin or key.startswith(f"{pin}.") or (pin.startswith(f"{key}.") and "." in key)


def _rows(pinning: Sequence[RowPlan], plans: Sequence[RowPlan]) -> str:
    if len(pinning) == len(plans):
        return "in every row"
    names = [repr(row_name(plan.row)) for plan in pinning]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return f"in the row{'s' * (len(names) > 1)} {', '.join([*names[:NAMED], *more])}"


def _demand(spec: TableSpec, scale: str, records: Sequence[RunRecord]) -> Demand:
    configs = {tuple(overrides): compose(overrides) for overrides in table_runs(spec, scale)}
    without = {tuple(overrides): run_id(configs[tuple(overrides)]) for overrides in missing_runs(spec, scale, records)}
    bases = {base: compose(base) for base in dict.fromkeys(map(base_run, configs)) if base}
    runs = {run_id(config): config for config in (*configs.values(), *bases.values())}
    # A base is no row: it is made where a run that begins from it is, whatever is published of it.
    needed = {base: run_id(bases[base]) for base in dict.fromkeys(map(base_run, without)) if base}
    return Demand(spec, scale, runs, {**needed, **without})


@cache
def base_run(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides of the run that these describe as their base, with its checkpoint to keep; none without one."""
    if not any(override_key(override) == "base" for override in overrides) or not (found := base_words(overrides)):
        return ()
    words, step = found
    return (*words, f"keep_steps=[{step}]")


def missing(demanded: Sequence[Demand], outputs: Path) -> list[Run]:
    """The runs to make, each once. A run whose record no row of its table took may have one in ``outputs``."""
    return plan_runs(wanted(demanded), place(outputs))[0]


def wanted(demanded: Sequence[Demand]) -> list[tuple[str, ...]]:
    """The overrides of all that is lacking; ``plan_runs`` finds those that are one run."""
    return [overrides for demand in demanded for overrides in demand.lacking]


def place(outputs: Path) -> Path | None:
    """For ``plan_runs``: a run's overrides are part of its record, so the default folder is not among them."""
    return None if outputs == Path("outputs") else outputs
