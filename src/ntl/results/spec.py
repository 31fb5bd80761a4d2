"""Schemas of ``config/table``, what a table runs and prints, and of ``results/paper``, what the paper prints there."""

from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ntl.config.folders import CONFIG_DIR, PAPER_FOLDER
from ntl.config.yaml_files import read_yaml
from ntl.evaluation.metrics import Better, metric_of
from ntl.system.errors import UserError

# Settings that change no cell: the folders, and the checkpoint that a run resumes from.
LOCATIONS = ("data_dir", "output_dir", "resume")
TABLE_FOLDER = CONFIG_DIR / "table"
# Printed with the constant answers, and none themselves: a rule that is wrong in a known way
# (``TextDataset.shortcut``), and a linear model of the question's characters (``ntl.evaluation.ridge``).
SHORTCUT, RIDGE = REFERENCES = ("shortcut", "ridge")
MOST_COLUMNS = 6  # of numbers, on a page


def read_typed(schema: Any, path: Path) -> Any:
    """A dataclass from a YAML file.

    UserError, in one line with the file and the key: no YAML, an unknown or missing key, a value of a wrong type.
    """
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise UserError(f"{path}: a mapping is expected, not {str(raw)[:40]!r}")
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), raw))
    except OmegaConfBaseException as error:
        raise UserError(f"{path}: {error.full_key or error.key}: {str(error.msg or error).splitlines()[0]}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


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
    """``format`` and ``paper_format`` are Python format specs: a paper number keeps the digits it was printed with.

    ``format`` and ``header`` are those of the list of metrics where they are empty; in a block of several splits the
    header then begins with the split. ``short`` is the format of the page, ``format`` where it is empty.
    ``details`` columns are in the CSV alone. UserError: the list lacks the metric.
    """

    metric: str = MISSING
    header: str = ""
    format: str = ""
    paper_format: str = ".2f"
    short: str = ""
    details: bool = False

    def __post_init__(self) -> None:
        self.format = self.format or metric_of(self.metric).format

    @property
    def better(self) -> Better:
        """Which of its values are the better ones."""
        return metric_of(self.metric).better


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


@dataclass
class ScaleSpec:
    """What one scale adds. ``replace`` swaps an override for another, as ``model=t5_small`` for a stand-in.

    ``groups`` keeps only those groups of rows; empty keeps all. ``labels`` renames groups at this scale, for example
    where one stand-in takes the place of several.
    """

    seeds: list[int] = MISSING
    overrides: list[str] = field(default_factory=list)
    replace: dict[str, str] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass
class BlockSpec:
    """One data set's part of a table; ``overrides`` hold for all its rows, before those of the scale and the row."""

    title: str = MISSING
    dataset: str = MISSING
    columns: list[ColumnSpec] = MISSING
    rows: list[RowSpec] = MISSING
    scales: dict[str, ScaleSpec] = MISSING
    overrides: list[str] = field(default_factory=list)
    note: str = ""


@dataclass
class PairSpec:
    """``row`` minus ``against`` in ``metric``: labels of rows of ``group`` in block number ``block`` of a table."""

    row: str = MISSING
    against: str = MISSING
    metric: str = MISSING
    group: str = ""
    block: int = 0


@dataclass
class PrimarySpec(PairSpec):
    """The one comparison that a table is made for.

    ``named`` is the day on which it was chosen, ``seen`` lists the commits of the records whose results were known by
    then.
    """

    named: str = MISSING
    seen: list[str] = field(default_factory=list)


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


@dataclass
class PaperRow:
    """One printed row. ``block``, ``group`` and ``label`` name the row of the table that it belongs to.

    ``values``: metric -> [value] or [mean, standard deviation].
    """

    label: str = MISSING
    values: dict[str, list[float]] = MISSING
    block: int = 0
    group: str = ""


@dataclass
class PaperNumbers:
    """What one table or figure of the paper prints. ``runs`` is what it says of the number of runs, empty for nothing.

    ``cited`` are printed rows that the paper took from elsewhere; no run here is compared with them.
    """

    source: str = MISSING
    title: str = MISSING
    rows: list[PaperRow] = MISSING
    runs: str = ""
    note: str = ""
    cited: list[PaperRow] = field(default_factory=list)
    cited_from: str = ""


def table_names(folder: Path = TABLE_FOLDER) -> list[str]:
    """The tables there are, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_table_spec(name: str, folder: Path = TABLE_FOLDER, paper: Path = PAPER_FOLDER) -> TableSpec:
    """Read and check ``<folder>/<name>.yaml``, with the numbers of ``<paper>/<name>.yaml`` where that is there.

    A mistake in either is a UserError that names the file and the key.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = table_names(folder)
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"
        raise UserError(f"no table {name!r}: {hint}")
    spec: TableSpec = read_typed(TableSpec, path)
    if spec.added:
        raise UserError(f"{path}: added: an override of all rows of a block goes into its overrides")
    spec.name = name
    _check(spec, path)
    for block in spec.blocks:
        _name_columns(block)
    if (numbers := paper / path.name).is_file():
        _attach(spec, numbers)
    return spec


def _name_columns(block: BlockSpec) -> None:
    several = len({column.metric.partition("/")[0] for column in block.columns}) > 1
    for column in block.columns:
        split, _, name = column.metric.partition("/")
        reading = name.partition("@")[2]
        given = f"{split} {metric_of(column.metric).heading}" if several else metric_of(column.metric).heading
        column.header = column.header or (f"{given}, {reading}" if reading else given)


def _attach(spec: TableSpec, path: Path) -> None:
    rows = {(n, row.group, row.label): row for n, block in enumerate(spec.blocks) for row in block.rows}
    for printed in read_paper(path).rows:
        where = f"{path}: rows: {' '.join(filter(None, [printed.group, printed.label]))}"
        row = rows.get((printed.block, printed.group, printed.label))
        if row is None:
            raise UserError(f"{where}: block {printed.block} of table {spec.name!r} has no such row")
        metrics = [column.metric for column in spec.blocks[printed.block].columns]
        if lost := [metric for metric in printed.values if metric not in metrics]:
            raise UserError(f"{where}: {lost[0]} has no column in table {spec.name!r}")
        row.paper = printed.values


def _check(spec: TableSpec, path: Path) -> None:
    for number, block in enumerate(spec.blocks):
        where = f"{path}: blocks[{number}]"
        metrics = [column.metric for column in block.columns]
        groups = {row.group for row in block.rows}
        if len(set(metrics)) < len(metrics):
            raise UserError(f"{where}.columns: a metric is listed twice")
        for column in block.columns:
            for key in ("format", "paper_format", "short"):
                _check_format(getattr(column, key), f"{where}.columns: {column.metric}: {key}")
        if sum(not column.details for column in block.columns) > MOST_COLUMNS:
            raise UserError(f"{where}.columns: more than {MOST_COLUMNS} to show: mark the others details: true")
        _check_overrides(block.overrides, f"{where}.overrides")
        for row in block.rows:
            _check_row(row, f"{where}.rows: {row.label}")
        for scale, part in block.scales.items():
            _check_overrides([*part.overrides, *part.replace.values()], f"{where}.scales.{scale}")
            if not part.seeds or len(set(part.seeds)) < len(part.seeds):
                raise UserError(f"{where}.scales.{scale}.seeds: give at least one seed and none twice")
            if lost := [row.label for row in block.rows if set(row.seeds) - set(part.seeds)]:
                raise UserError(f"{where}.rows: {lost[0]}: seeds that scale {scale!r} does not have")
            for key, named in (("groups", part.groups), ("labels", part.labels)):
                if lost := sorted(set(named) - groups):
                    raise UserError(f"{where}.scales.{scale}.{key}: no row has the group {lost[0]!r}")
    if lost := sorted(set(spec.primary_at) - set(spec.scales)):
        raise UserError(f"{path}: primary_at: no block has the scale {lost[0]!r}")
    others = [scale for scale in spec.scales if scale not in spec.primary_at]
    _check_primary(spec, spec.primary, others, f"{path}: primary")
    for scale, primary in spec.primary_at.items():
        _check_primary(spec, primary, [scale], f"{path}: primary_at.{scale}")


def check_pair(pair: PairSpec, table: TableSpec, where: str) -> BlockSpec:
    """The block of two rows to compare. UserError where the table has no such block, or a row that does not run."""
    if not 0 <= pair.block < len(table.blocks):
        raise UserError(f"{where}.block: table {table.name!r} has no block {pair.block}")
    block = table.blocks[pair.block]
    labels = [row.label for row in block.rows if row.group == pair.group and row.role is not Role.constant]
    for key, label in (("row", pair.row), ("against", pair.against)):
        if label not in labels:
            within = f" in the group {pair.group!r}" if pair.group else ""
            raise UserError(f"{where}.{key}: table {table.name!r} has no row {label!r}{within} that runs")
    return block


def _check_primary(spec: TableSpec, primary: PrimarySpec, scales: list[str], where: str) -> None:
    block = check_pair(primary, spec, where)
    if primary.row == primary.against:
        raise UserError(f"{where}.against: a row is not compared with itself")
    ends = [c.metric for c in block.columns if not c.details and c.better is not Better.neither]
    if primary.metric not in ends:
        raise UserError(f"{where}.metric: {primary.metric!r} is no shown column with a good end: {', '.join(ends)}")
    for scale in scales:
        part = block.scales.get(scale)
        if part is None or (part.groups and primary.group not in part.groups):
            raise UserError(f"{where}: its rows are not run at scale {scale!r}")


def _check_row(row: RowSpec, where: str) -> None:
    if row.paper:
        raise UserError(f"{where}: paper: the paper's numbers belong in results/paper")
    if (row.role is Role.constant) != bool(row.constant) or (row.constant and row.overrides):
        raise UserError(f"{where}: a constant row has role constant, a constant and no overrides")
    _check_overrides(row.overrides, where)


def _check_overrides(overrides: list[str], where: str) -> None:
    for override in overrides:
        if override.partition("=")[0].lstrip("+~") in LOCATIONS:
            raise UserError(
                f"{where}: {override}: where files lie is no part of a table; leave it out (data is also found under "
                "NTL_DATA_DIR, and reproduce.py has outputs=)"
            )


def _check_format(text: str, where: str) -> None:
    try:
        format(1.0, text)
        format(1.0, f"+{text}")
    except ValueError as error:
        raise UserError(f"{where} {text!r} is no format for a number") from error


def read_paper(path: Path) -> PaperNumbers:
    """The numbers in a file. UserError names the file and the key."""
    return read_typed(PaperNumbers, path)
