"""Schemas of ``config/table``, what a table runs and prints, and of ``config/verdicts.yaml``, what is claimed."""

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from ntl.config.folders import CONFIG_DIR, PAPER_FOLDER, choices, read_yaml
from ntl.config.settings import nearest
from ntl.evaluation.metrics import REFERENCES, Better, metric_of
from ntl.system.errors import UserError

TABLE_FOLDER, VERDICTS = CONFIG_DIR / "table", CONFIG_DIR / "verdicts.yaml"
BAND = 0.05  # the smallest effect that matters: a share of the error, or of the baseline's rate
CONSTANTS = ("mode", "median", "mean", *REFERENCES)
LABELS = {"ridge": "ridge, characters", "shortcut": "ignores the parentheses"}  # of ``constants`` that are none
SPLITS = {"interpolate": "interpolation", "extrapolate": "extrapolation"}  # as a sentence calls them


def read_typed(schema: Any, path: Path) -> Any:
    """A dataclass from a YAML file. UserError, in one line with file and key: a wrong key or value."""
    values = read_yaml(path)
    from omegaconf import OmegaConf  # here, since it takes longer to load than a command's help
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), values))
    except (OmegaConfBaseException, UserError, ValueError) as error:
        key = f"{error.full_key}: " if isinstance(error, OmegaConfBaseException) and error.full_key else ""
        raise UserError(f"{path}: {key}{str(error).partition(chr(10))[0]}") from error


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

    Where they are empty, ``format`` and ``header`` are taken from the list of metrics; in a block of several splits the
    header then begins with the split. ``details`` columns are in the CSV alone.
    """

    metric: str
    header: str = ""
    format: str = ""
    paper_format: str = ".2f"
    short: str = ""
    details: bool = False
    readings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.format = self.format or metric_of(self.metric).format
        for spec in (self.format, self.paper_format, self.short):
            format(1.0, f"+{spec}")  # ValueError: it is no format for a number

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

    ``seeds`` are the seeds of a scale that the row is run with; empty: all.
    ``paper``: metric -> [value] or [mean, standard deviation], which ``load_table_spec`` takes from ``results/paper``.
    """

    label: str
    overrides: list[str] = field(default_factory=list)
    role: Role = Role.other
    group: str = ""
    constant: str = ""
    seeds: list[int] = field(default_factory=list)
    paper: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.role is Role.constant) != bool(self.constant) or (self.constant and self.overrides):
            raise UserError(f"{self.label}: a constant row has role constant, a constant and no overrides")
        if self.constant and self.constant not in CONSTANTS:
            known = f"choose from {', '.join(CONSTANTS)}.{nearest(self.constant, CONSTANTS)}"
            raise UserError(f"{self.label}: constant: {self.constant}: {known}")


@dataclass
class ScaleSpec:
    """What one scale adds. ``replace`` swaps an override for another, as ``model=t5_small`` for a stand-in.

    ``groups`` keeps only those groups of rows; empty keeps all. ``labels`` renames groups at this scale, for example
    where one stand-in takes the place of several. ``heuristics``: what answers that need no learning score beside the
    constant ones, name -> metric -> score.
    """

    seeds: list[int]
    overrides: list[str] = field(default_factory=list)
    replace: dict[str, str] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    heuristics: dict[str, dict[str, float]] = field(default_factory=dict)
    note: str = ""


@dataclass
class BlockSpec:
    """One data set's part of a table; ``overrides`` hold for all its rows, before the scale's and the row's.

    ``in_groups``: group -> overrides; each row is one of every group, or of the one that it names. ``constants`` become
    rows at the end, and ``readings`` of a column further columns after it.
    """

    title: str
    dataset: str
    columns: list[ColumnSpec]
    rows: list[RowSpec]
    scales: dict[str, ScaleSpec]
    overrides: list[str] = field(default_factory=list)
    in_groups: dict[str, list[str]] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    note: str = ""

    def _write_out(self) -> list[str]:
        """Write out readings, groups and constants. Return what is wrong with the groups that rows name."""
        read = [(column, at) for column in self.columns for at in ("", *(f"@{name}" for name in column.readings))]
        self.columns = [replace(column, metric=column.metric + at, readings=[]) for column, at in read]
        own = [row for row in self.rows if not row.constant]
        pairs = [(row, of) for of in self.in_groups.items() for row in own if row.group in ("", of[0])]
        grouped = [replace(row, group=group, overrides=[*row.overrides, *words]) for row, (group, words) in pairs]
        strange = [row.group for row in own if self.in_groups and row.group not in ("", *self.in_groups)]
        self.rows = [*(grouped or own), *(row for row in self.rows if row.constant)]
        group = "Constant answers" if any(row.group for row in self.rows) else ""
        for name in self.constants:
            self.rows.append(RowSpec(LABELS.get(name, f"constant: {name}"), [], Role.constant, group, name))
        return [f"rows: {name!r} is none of in_groups" for name in strange]

    def __post_init__(self) -> None:
        faults = self._write_out()
        groups = {row.group for row in self.rows}
        for scale, part in self.scales.items():
            faults += [] if part.seeds else [f"scales.{scale}.seeds: give at least one seed"]
            faults += [f"rows: {r.label}: seeds that {scale} lacks" for r in self.rows if {*r.seeds} - {*part.seeds}]
            faults += [f"scales.{scale}: no row has the group {x!r}" for x in {*part.groups, *part.labels} - groups]
        known = ("", "paper", *choices("decoding"))
        read_by = {at: column.metric for column in self.columns for at in column.metric.split("@")[1:]}
        faults += [f"columns: {read_by[at]}: no decoding {at!r}.{nearest(at, known)}" for at in {*read_by} - {*known}]
        if faults:
            raise UserError(f"{self.title}: {faults[0]}")
        several = len({column.metric.partition("/")[0] for column in self.columns}) > 1
        for column in self.columns:
            split, _, name = column.metric.partition("/")
            reading = name.partition("@")[2].replace("_", " ")
            heading = f"{split} {metric_of(column.metric).heading}" if several else metric_of(column.metric).heading
            column.header = column.header or (f"{heading}, {reading}" if reading else heading)


@dataclass
class PairSpec:
    """``row`` minus ``against`` in ``metric``: labels of rows in block number ``block`` of a table.

    ``groups`` of rows, such as architectures, are averaged within a seed. ``against_metric``: how the row compared with
    is read, where otherwise: ``interpolate/mae`` beside ``interpolate/mae@expectation``.
    """

    row: str = ""
    against: str = ""
    metric: str = ""
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

    named: str = field(kw_only=True)
    seen: list[str] = field(default_factory=list)
    band: float = BAND
    less: str = ""
    assay: str = ""


@dataclass
class TableSpec:
    """One file of ``config/table``; its name is the table's. The title is ``what: subject``, without the model.

    ``primary_at``: scale -> the comparison of that scale, where it is another than ``primary``.
    ``added`` are overrides that a command line gave for all its runs: with any of them it is not the table of the file.
    ``file`` is the path by which it was asked for, as one outside ``config/table`` is; else empty.
    """

    title: str
    blocks: list[BlockSpec]
    primary: PrimarySpec
    primary_at: dict[str, PrimarySpec] = field(default_factory=dict)
    note: str = ""
    name: str = ""
    file: str = ""
    added: list[str] = field(default_factory=list)

    @property
    def scales(self) -> list[str]:
        """The scales that any block has, in the order in which the file names them."""
        return list(dict.fromkeys(scale for block in self.blocks for scale in block.scales))

    def primary_of(self, scale: str) -> PrimarySpec:
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
    spec.name, spec.file = path.stem, name if name.endswith(".yaml") else ""
    for scale in spec.scales:
        primary, where = spec.primary_of(scale), f"{path}: primary at scale {scale!r}"
        block = check_pair(primary, spec, where)
        part = block.scales.get(scale)
        if part is None or (part.groups and not {*primary.groups} <= {*part.groups}):
            raise UserError(f"{where}: its rows are not run there")
        for metric in filter(None, (primary.metric, primary.against_metric, primary.assay)):
            column_of(block, metric, where)
    rows = {(number, row.group, row.label): row for number, block in enumerate(spec.blocks) for row in block.rows}
    numbers = PAPER_FOLDER / path.name
    for printed in read_yaml(numbers)["rows"] if numbers.is_file() and not spec.file else ():
        place = number, group, label = printed.get("block", 0), printed.get("group", ""), printed["label"]
        where = f"{numbers}: rows: {f'{group} {label}'.strip()}"
        if place not in rows:
            raise UserError(f"{where}: block {number} of table {spec.name!r} has no such row")
        if lost := printed["values"].keys() - {column.metric for column in spec.blocks[number].columns}:
            raise UserError(f"{where}: {min(lost)} has no column in table {spec.name!r}")
        rows[place].paper = {metric: list(map(float, values)) for metric, values in printed["values"].items()}
    return spec


table_spec = cache(load_table_spec)  # read, never changed, by claims and figures: one takes a tenth of a second


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


# ---- claims


class Whose(Enum):
    paper = "The paper's claims"
    ours = "Where a gain comes from"
    beyond = "Beyond the paper"


@dataclass
class CellSpec(PairSpec):
    """A task on which a claim is tested: ``row`` against ``against`` in one metric of a table, at each of its scales.

    Rows that are empty are the claim's; ``after``: the line was added when its records had been seen.
    ``benchmark``: in place of a table, a CSV file of ``results/benchmarks``; ``where`` chooses its line, with the
    ``ratio`` of a time to CE's. It is divided by the ratio in the line where ``over`` differs.
    """

    task: str = field(kw_only=True)
    table: str = ""
    scales: list[str] = field(default_factory=list)
    after: bool = False
    benchmark: str = ""
    where: dict[str, str] = field(default_factory=dict)
    over: dict[str, str] = field(default_factory=dict)


@dataclass
class ClaimSpec:
    """``text`` as one sentence, ``source``: where it is claimed; ``no_worse`` claims that nothing is lost."""

    name: str
    text: str
    source: str
    whose: Whose
    cells: list[CellSpec]
    row: str = ""
    against: str = ""
    no_worse: bool = False


@dataclass
class SentenceSpec:
    """What was learnt, with ``{claim/task}`` in place of numbers; ``holds``: the outcomes that it rests on."""

    text: str
    holds: dict[str, str]


@dataclass
class SquareSpec:
    """A task of README's table: CE and NTL-WAS, each read greedily and by its distribution (``reading``), in a metric.

    Its rows are the group ``group`` in block number ``block`` of a table.
    """

    task: str
    table: str
    scale: str
    metric: str
    reading: str
    block: int = 0
    group: str = ""


@dataclass
class VerdictsSpec:
    advice: list[SentenceSpec]
    squares: list[SquareSpec]
    learnt: list[SentenceSpec]
    claims: list[ClaimSpec]


def load_verdicts(path: Path = VERDICTS) -> VerdictsSpec:
    """Read and check the claims. UserError, in one line, names the file, the key and what is wrong there."""
    spec: VerdictsSpec = read_typed(VerdictsSpec, path)
    for claim in spec.claims:
        for index, cell in enumerate(claim.cells):
            where = f"{path}: {claim.name}: cells[{index}]"
            if bool(cell.table) == bool(cell.benchmark):
                raise UserError(f"{where}: give a table or a benchmark")
            if cell.table:
                cell.row, cell.against = cell.row or claim.row, cell.against or claim.against
                table = table_spec(cell.table)
                column_of(check_pair(cell, table, where), cell.metric, where)
                if lost := [scale for scale in cell.scales if scale not in table.scales]:
                    raise UserError(f"{where}.scales: table {cell.table!r} has no scale {lost[0]!r}")
    return spec


def column_of(block: BlockSpec, metric: str, where: str) -> ColumnSpec:
    """The column of a metric; of a reading without a column of its own, the column of the plain metric."""
    columns = {column.metric: column for column in block.columns if column.better is not Better.neither}
    name, _, reading = metric.partition("@")
    if metric in columns:
        return columns[metric]
    if name not in columns or reading not in choices("extra_decodings"):
        raise UserError(f"{where}: {metric!r} is no column with a good end: {', '.join(columns)}")
    old = columns[name]
    return ColumnSpec(metric, f"{old.header}, {reading}", old.format, old.paper_format, old.short)
