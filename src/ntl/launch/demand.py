"""What tables ask for: their runs, each once by its id, and which of these have no record yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ntl.config import UserError, compose, run_id
from ntl.config.root import Config
from ntl.config.table import TableSpec
from ntl.launch.plan import Run, plan_runs
from ntl.launch.settings import load
from ntl.results import RunRecord, missing_runs, table_runs


@dataclass(frozen=True)
class Demand:
    """One table at one scale. ``runs``: id -> config; ``lacking``: overrides of what has no record -> id."""

    spec: TableSpec
    scale: str
    runs: dict[str, Config]
    lacking: dict[tuple[str, ...], str]


def demands(
    tables: Sequence[str], scale: str, records: Sequence[RunRecord], skip: Callable[[str], None] = print
) -> list[Demand]:
    """What each table needs; one that lacks the scale is told to ``skip``. UserError where none has it."""
    specs = [load(name) for name in tables]
    having = [spec for spec in specs if scale in spec.scales]
    if not having:
        scales = dict.fromkeys(each for spec in specs for each in spec.scales)
        raise UserError(f"{', '.join(tables)}: nothing at scale={scale}; choose from {', '.join(scales)}.")
    for spec in specs:
        if scale not in spec.scales:
            skip(f"{spec.name}: nothing at scale={scale}, skipped; it has {', '.join(spec.scales)}.")
    return [_demand(spec, scale, records) for spec in having]


def _demand(spec: TableSpec, scale: str, records: Sequence[RunRecord]) -> Demand:
    configs = {tuple(overrides): compose(overrides) for overrides in table_runs(spec, scale)}
    runs = {run_id(config): config for config in configs.values()}
    without = map(tuple, missing_runs(spec, scale, records))
    return Demand(spec, scale, runs, {overrides: run_id(configs[overrides]) for overrides in without})


def missing(demanded: Sequence[Demand], outputs: Path) -> list[Run]:
    """The runs to make, each once. A run whose record no row of its table took may have one in ``outputs``."""
    return plan_runs(wanted(demanded), place(outputs))[0]


def wanted(demanded: Sequence[Demand]) -> list[tuple[str, ...]]:
    """The overrides of all that is lacking; ``plan_runs`` finds those that are one run."""
    return [overrides for demand in demanded for overrides in demand.lacking]


def place(outputs: Path) -> Path | None:
    """For ``plan_runs``: a run's overrides are part of its record, so the default folder is not among them."""
    return None if outputs == Path("outputs") else outputs
