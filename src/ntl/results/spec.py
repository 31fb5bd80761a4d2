"""Schemas of ``config/table``: what a table runs and prints."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, EnumMeta
from functools import cache
from itertools import product
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import MISSING

from ntl.config.folders import CONFIG_DIR, PAPER_FOLDER, read_yaml
from ntl.config.settings import nearest
from ntl.evaluation.metrics import Better, metric_of
from ntl.system.errors import UserError

TABLE_FOLDER = CONFIG_DIR / "table"
MOST_COLUMNS = 6  # of numbers, on a page
BAND = 0.05  # the smallest effect that matters: a share of the error, or of the baseline's rate
SPLITS = {"interpolate": "interpolation", "extrapolate": "extrapolation"}  # as a sentence calls them


def read_typed(schema: Any, path: Path) -> Any:
    """A dataclass from a YAML file. UserError, in one line: no YAML, or of ``typed``."""
    return typed(schema, read_yaml(path), str(path))


# A structured config of OmegaConf does the same and takes ten times as long: half a second for a long table.
def typed(kind: Any, value: Any, path: str, key: str = "") -> Any:
    """A value read from a file as ``kind``, a dataclass or another annotation.

    UserError, in one line with the file and the key: an unknown or missing key, a value of a wrong type.
    """
    items, origin = get_args(kind), get_origin(kind)
    if origin is UnionType:  # with None
        return value if value is None else typed(items[0], value, path, key)
    where = f"{path}: {key}" if key else path
    if hasattr(kind, "__dataclass_fields__") and isinstance(value, dict):
        hints, dot = _hints(kind), f"{key}." if key else ""
        if lost := [name for name in value if name not in hints]:
            raise UserError(f"{path}: {dot}{lost[0]}: no such key.{nearest(str(lost[0]), hints)}")
        needed = [each.name for each in fields(kind) if each.default is each.default_factory or each.default is MISSING]
        if lost := [name for name in needed if name not in value]:
            raise UserError(f"{path}: {dot}{lost[0]}: it is missing")
        given = {name: typed(hints[name], item, path, f"{dot}{name}") for name, item in value.items()}
        try:
            return kind(**given)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
    if kind is Any or (Any in items and isinstance(value, {Mapping: dict, Sequence: list}.get(origin, origin))):
        return value
    if origin in (list, Sequence) and isinstance(value, list):
        return [typed(items[0], item, path, f"{key}[{index}]") for index, item in enumerate(value)]
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {str(name): typed(items[1], item, path, f"{key}.{name}") for name, item in value.items()}
    if isinstance(kind, EnumMeta) and value in kind.__members__:
        return kind[value]
    fits = type(value) is int and abs(value) <= sys.float_info.max
    if (kind is str and isinstance(value, str | int | float)) or (kind is float and fits):
        return kind(value)
    if type(value) is not (origin or kind) or (kind is float and not math.isfinite(value)):
        raise UserError(f"{where}: {str(value)[:40]!r} does not fit {getattr(kind, '__name__', kind)}")
    return value


_hints = cache(get_type_hints)


class Role(Enum):
    """All rows of a group are compared with its ``baseline``, and its ``ntl`` rows with its ``control``, too.

    A ``constant`` row is no run: it prints the score of one constant answer, which every record carries.
    """

    baseline = "baseline"
    control = "control"
    ntl = "ntl"
    other = "other"
    constant = "constant"


@dataclass
class ColumnSpec:
    """``format``, ``short`` (of the page) and ``paper_format`` are Python format specs.

    ``format`` and ``header`` are those of the list of metrics where they are empty; in a block of several splits the
    header then begins with the split. ``details`` columns are in the CSV alone.
    """

    metric: str = MISSING
    header: str = ""
    format: str = ""
    paper_format: str = ".2f"
    short: str = ""
    details: bool = False

    def __post_init__(self) -> None:
        self.format = self.format or metric_of(self.metric).format
        for spec in (self.format, self.paper_format, self.short):
            try:
                format(1.0, f"+{spec}")
            except ValueError as error:
                raise UserError(f"{self.metric}: {spec!r} is no format for a number") from error

    @property
    def better(self) -> Better:
        """Which of its values are the better ones."""
        return metric_of(self.metric).better

    @property
    def words(self) -> str:
        """The header within a sentence: ``MAE (interpolation)``."""
        split, _, rest = self.header.partition(" ")
        return f"{rest} ({SPLITS[split]})" if split in SPLITS else self.header


@dataclass
class RowSpec:
    """``constant``: mode, median or mean; or one of ``REFERENCES``, which a row need not beat to be learnt.

    ``seeds`` are those of a scale that the row is run with; empty: all.
    ``paper``: metric -> [value] or [mean, standard deviation], which ``load_table_spec`` takes from ``results/paper``.
    """

    label: str = MISSING
    overrides: list[str] = field(default_factory=list)
    role: Role = Role.other
    group: str = ""
    constant: str = ""
    seeds: list[int] = field(default_factory=list)
    paper: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.role is Role.constant) != bool(self.constant) or (self.constant and self.overrides):
            raise UserError(f"{self.label}: a constant row has role constant, a constant and no overrides")


@dataclass
class ScaleSpec:
    """What one scale adds. ``replace`` swaps an override for another, as ``model=t5_small`` for a stand-in.

    ``groups`` keeps only those groups of rows; empty keeps all. ``labels`` renames groups at this scale, for example
    where one stand-in takes the place of several. ``heuristics``: what answers that need no learning score beside the
    constant ones, name -> metric -> score.
    """

    seeds: list[int] = MISSING
    overrides: list[str] = field(default_factory=list)
    replace: dict[str, str] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    heuristics: dict[str, dict[str, float]] = field(default_factory=dict)
    note: str = ""


@dataclass
class FamilySpec:
    """Rows that are each compared with one, ``against``, in a metric: intervals are corrected for their number."""

    rows: list[str] = MISSING
    against: str = MISSING
    metric: str = MISSING


@dataclass
class BlockSpec:
    """One data set's part of a table; ``overrides`` hold for all its rows, before those of the scale and the row."""

    title: str = MISSING
    dataset: str = MISSING
    columns: list[ColumnSpec] = MISSING
    rows: list[RowSpec] = MISSING
    scales: dict[str, ScaleSpec] = MISSING
    overrides: list[str] = field(default_factory=list)
    families: list[FamilySpec] = field(default_factory=list)
    note: str = ""

    def __post_init__(self) -> None:
        metrics, groups = [column.metric for column in self.columns], {row.group for row in self.rows}
        if len(set(metrics)) < len(metrics):
            raise UserError("columns: a metric is listed twice")
        if sum(not column.details for column in self.columns) > MOST_COLUMNS:
            raise UserError(f"columns: more than {MOST_COLUMNS} to show: mark the others details: true")
        for scale, part in self.scales.items():
            if not part.seeds or len(set(part.seeds)) < len(part.seeds):
                raise UserError(f"scales.{scale}.seeds: give at least one seed and none twice")
            if lost := [row.label for row in self.rows if set(row.seeds) - set(part.seeds)]:
                raise UserError(f"rows: {lost[0]}: seeds that scale {scale!r} does not have")
            if lost := sorted({*part.groups, *part.labels} - groups):
                raise UserError(f"scales.{scale}: no row has the group {lost[0]!r}")
        labels = [row.label for row in self.rows if row.role is not Role.constant]
        for family in self.families:
            if lost := [label for label in (*family.rows, family.against) if labels.count(label) != 1]:
                raise UserError(f"families: not one row that runs has the label {lost[0]!r}")
            if family.metric not in metrics:
                raise UserError(f"families: no column has the metric {family.metric!r}")
        several = len({metric.partition("/")[0] for metric in metrics}) > 1
        for column in self.columns:
            split, _, name = column.metric.partition("/")
            reading = name.partition("@")[2].replace("_", " ")
            given = f"{split} {metric_of(column.metric).heading}" if several else metric_of(column.metric).heading
            column.header = column.header or (f"{given}, {reading}" if reading else given)


@dataclass
class PairSpec:
    """``row`` minus ``against`` in ``metric``: labels of rows in block number ``block`` of a table.

    ``groups`` of rows, such as architectures, are averaged within a seed. ``against_metric``: how the row compared with
    is read, where otherwise: ``interpolate/mae`` beside ``interpolate/mae@expectation``.
    """

    row: str = MISSING
    against: str = MISSING
    metric: str = MISSING
    against_metric: str = ""
    groups: list[str] = field(default_factory=lambda: [""])
    block: int = 0


@dataclass
class PrimarySpec(PairSpec):
    """The one comparison that a table is made for.

    ``named`` is the day on which it was chosen, ``seen`` lists the commits of the records whose results were known by
    then. ``band`` is the smallest effect that matters. ``less``: a group whose effect is subtracted, seed by seed.
    ``assay``: a metric in which the row has to beat the other, or the comparison is not testable.
    """

    named: str = MISSING
    seen: list[str] = field(default_factory=list)
    band: float = BAND
    less: str = ""
    assay: str = ""


@dataclass
class TableSpec:
    """One file of ``config/table``; its name is the table's. The title is ``what: subject``, without the model.

    ``primary_at``: scale -> the comparison of that scale, where it is another than ``primary``.
    ``added`` are overrides that a command line gave for all its runs: with any of them it is not the table of the file.
    """

    title: str = MISSING
    blocks: list[BlockSpec] = MISSING
    primary: PrimarySpec = MISSING
    primary_at: dict[str, PrimarySpec] = field(default_factory=dict)
    note: str = ""
    name: str = ""
    added: list[str] = field(default_factory=list)

    @property
    def scales(self) -> list[str]:
        """The scales that any block has, in the order in which the file names them."""
        return list(dict.fromkeys(scale for block in self.blocks for scale in block.scales))

    def primary_of(self, scale: str) -> PrimarySpec:
        """The one comparison at a scale."""
        return self.primary_at.get(scale, self.primary)


def table_names() -> list[str]:
    """The tables there are, sorted."""
    return sorted(path.stem for path in TABLE_FOLDER.glob("*.yaml"))


def load_table_spec(name: str) -> TableSpec:
    """Read and check a table of ``config/table``, or the file of this path, with the numbers of ``results/paper``.

    A mistake in either file is a UserError that names it and the key.
    """
    path = Path(name) if name.endswith(".yaml") else TABLE_FOLDER / f"{name}.yaml"
    if not path.is_file():
        names = table_names()
        raise UserError(f"no table {name!r}.{nearest(name, names) or ' Choose from ' + ', '.join(names)}")
    spec: TableSpec = read_typed(TableSpec, path)
    spec.name = path.stem
    for scale in spec.scales:
        primary, where = spec.primary_of(scale), f"{path}: primary at scale {scale!r}"
        part = check_pair(primary, spec, where).scales.get(scale)
        if part is None or (part.groups and not {*primary.groups} <= {*part.groups}):
            raise UserError(f"{where}: its rows are not run there")
        columns = {column.metric: column.details for column in spec.blocks[primary.block].columns}
        for metric in filter(None, (primary.metric, primary.against_metric, primary.assay)):
            if columns.get(metric, True):
                raise UserError(f"{where}: {metric!r} is no shown column")
    if (numbers := PAPER_FOLDER / path.name).is_file():
        _attach(spec, numbers)
    return spec


table_spec = cache(load_table_spec)  # read, never changed, by claims and figures: one takes a tenth of a second


def read_paper(path: Path) -> list[dict[str, Any]]:
    """The rows that a table or figure of the paper prints: ``label`` and ``values`` (metric -> [value] or [mean, sd]).

    ``block`` and ``group``, where given, say to which row of the table of that name each belongs.
    """
    return read_yaml(path)["rows"]


def _attach(spec: TableSpec, path: Path) -> None:
    rows = {(n, row.group, row.label): row for n, block in enumerate(spec.blocks) for row in block.rows}
    for printed in read_paper(path):
        place = number, group, label = printed.get("block", 0), printed.get("group", ""), printed["label"]
        where = f"{path}: rows: {f'{group} {label}'.strip()}"
        if place not in rows:
            raise UserError(f"{where}: block {number} of table {spec.name!r} has no such row")
        if lost := printed["values"].keys() - {column.metric for column in spec.blocks[number].columns}:
            raise UserError(f"{where}: {min(lost)} has no column in table {spec.name!r}")
        rows[place].paper = {metric: list(map(float, values)) for metric, values in printed["values"].items()}


def check_pair(pair: PairSpec, table: TableSpec, where: str) -> BlockSpec:
    """The block of two rows to compare. UserError where the table has no such block, or a row that does not run."""
    if not 0 <= pair.block < len(table.blocks):
        raise UserError(f"{where}.block: table {table.name!r} has no block {pair.block}")
    block = table.blocks[pair.block]
    for group, key in product([*pair.groups, *filter(None, [getattr(pair, "less", "")])], ("row", "against")):
        label = getattr(pair, key)
        if label not in [row.label for row in block.rows if row.group == group and row.role is not Role.constant]:
            within = f" in the group {group!r}" if group else ""
            raise UserError(f"{where}.{key}: table {table.name!r} has no row {label!r}{within} that runs")
    return block
