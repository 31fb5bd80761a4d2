"""Schema of ``config/claims.yaml``: what is claimed, and the comparisons that decide it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from omegaconf import MISSING

from ntl.results.spec import Better, BlockSpec, ColumnSpec, TableSpec, labels_that_run, load_table_spec
from ntl.results.typed import read_typed
from ntl.system.errors import UserError

CLAIMS = Path(__file__).resolve().parents[3] / "config" / "claims.yaml"
READINGS = Path(__file__).resolve().parents[3] / "config" / "beside"


class Whose(Enum):
    paper = "The paper's claims"
    ours = "Where the gain comes from"


class Says(Enum):
    """What is claimed of ``row`` minus ``against``: better by more than the margin, or worse by less."""

    better = "better"
    no_worse = "no worse"


@dataclass
class PlaceSpec:
    """``row`` minus ``against``, labels of rows of ``group`` in block number ``block`` of a table.

    ``metric`` is a column of the block, or one with a reading of ``config/beside``: ``test/rmse@expectation``.
    ``against_metric`` is that of ``against``, empty for the same.
    """

    table: str = MISSING
    row: str = MISSING
    against: str = MISSING
    metric: str = MISSING
    against_metric: str = ""
    group: str = ""
    block: int = 0


@dataclass
class EvidenceSpec(PlaceSpec):
    """A comparison of rows, and what the claim ``says`` of it.

    ``margin`` is a share of the mean of ``against``. ``scales`` empty: all of the table's.
    """

    says: Says = MISSING
    margin: float = 0.0
    scales: list[str] = field(default_factory=list)


@dataclass
class TimingSpec:
    """A ratio in a CSV file of ``results/benchmarks``, at most 1 + ``margin``: the one line that has ``where``.

    ``<column>_low`` and ``<column>_high`` are the interval of ``column``, and ``rounds`` is its n.
    """

    benchmark: str = MISSING
    where: dict[str, str] = MISSING
    column: str = "ratio"
    what: str = ""
    margin: float = 0.0


@dataclass
class ClaimSpec:
    """``name`` in a word or two, ``text`` as one sentence, ``source``: where it is claimed."""

    name: str = MISSING
    text: str = MISSING
    source: str = MISSING
    whose: Whose = MISSING
    evidence: list[EvidenceSpec] = field(default_factory=list)
    timings: list[TimingSpec] = field(default_factory=list)


@dataclass
class ClaimsSpec:
    claims: list[ClaimSpec] = MISSING


def load_claims(path: Path = CLAIMS, known: Iterable[TableSpec] = ()) -> list[ClaimSpec]:
    """Read and check the claims; ``known`` are tables that need not be read again.

    UserError, in one line, names the file, the key and what is wrong there.
    """
    spec: ClaimsSpec = read_typed(ClaimsSpec, path)
    tables = {table.name: table for table in known}
    for number, claim in enumerate(spec.claims):
        where = f"{path}: claims[{number}] ({claim.name})"
        if not claim.evidence and not claim.timings:
            raise UserError(f"{where}: name at least one comparison under evidence or timings")
        for index, each in enumerate(claim.evidence):
            place = f"{where}.evidence[{index}]"
            if each.table not in tables:
                tables[each.table] = _table(each.table, place)
            check_place(each, tables[each.table], place)
            if lost := [scale for scale in each.scales if scale not in tables[each.table].scales]:
                raise UserError(f"{place}.scales: table {each.table!r} has no scale {lost[0]!r}")
            if each.margin < 0 or (each.says is Says.no_worse and not each.margin):
                raise UserError(f"{place}.margin: {each.says.name} takes a share of the mean, above 0 for no_worse")
        for index, each in enumerate(claim.timings):
            if not each.what:
                raise UserError(f"{where}.timings[{index}].what: say what was timed")
    return spec.claims


def _table(name: str, where: str) -> TableSpec:
    try:
        return load_table_spec(name)
    except UserError as error:
        raise UserError(f"{where}.table: {error}") from error


def check_place(place: PlaceSpec, table: TableSpec, where: str) -> None:
    """UserError where the table has no such block, row or metric."""
    if not 0 <= place.block < len(table.blocks):
        raise UserError(f"{where}.block: table {table.name!r} has no block {place.block}")
    block = table.blocks[place.block]
    labels = labels_that_run(block, place.group)
    for key in ("row", "against"):
        if getattr(place, key) not in labels:
            within = f" in the group {place.group!r}" if place.group else ""
            raise UserError(f"{where}.{key}: table {table.name!r} has no row {getattr(place, key)!r}{within} that runs")
    for key in ("metric", "against_metric"):
        if getattr(place, key):
            column_of(block, getattr(place, key), f"{where}.{key}")
    if (place.row, place.metric) == (place.against, place.against_metric or place.metric):
        raise UserError(f"{where}.against: a row is not compared with itself")


def column_of(block: BlockSpec, metric: str, where: str) -> ColumnSpec:
    """The column of a metric; for a reading without a column of its own, that of the metric without the reading."""
    columns = {column.metric: column for column in block.columns if column.better is not Better.neither}
    name, _, reading = metric.partition("@")
    if metric in columns:
        return columns[metric]
    if name not in columns or not (READINGS / f"{reading}.yaml").is_file():
        raise UserError(f"{where}: {metric!r} is no column with a good end: {', '.join(columns)}")
    old = columns[name]
    return ColumnSpec(metric, f"{old.header}, {reading}", old.better, old.format, old.paper_format, old.short)
