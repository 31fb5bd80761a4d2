"""Schema of ``config/table``: what a table runs, what it prints, and what the paper prints in the same cells."""

from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ntl.config.errors import UserError

TABLE_FOLDER = Path(__file__).resolve().parents[3] / "config" / "table"


class Better(Enum):
    """Which end of a column is the good one; ``neither`` is never bold."""

    higher = 1
    lower = -1
    neither = 0


class Role(Enum):
    """``baseline`` is what a group's rows are compared with, ``control`` what its ``ntl`` rows are, too.

    A ``constant`` row is no run: it prints the score of one constant answer, which every record carries.
    """

    baseline = "baseline"
    control = "control"
    ntl = "ntl"
    other = "other"
    constant = "constant"


@dataclass
class ColumnSpec:
    """``format`` and ``paper_format`` are Python format specs: a paper number keeps the digits it was printed with."""

    metric: str = MISSING
    header: str = MISSING
    better: Better = MISSING
    format: str = ".3f"
    paper_format: str = ".2f"


@dataclass
class RowSpec:
    """``paper``: metric -> [value] or [mean, standard deviation]. ``constant``: mode, median or mean."""

    label: str = MISSING
    overrides: list[str] = field(default_factory=list)
    role: Role = Role.other
    group: str = ""
    constant: str = ""
    paper: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class ScaleSpec:
    """What one scale adds. ``replace`` swaps an override for another, as ``model=t5_small`` for a stand-in.

    ``groups`` keeps only those groups of rows; empty keeps all. ``labels`` is what a group is called at this scale, for
    example where one stand-in takes the place of several.
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
class TableSpec:
    """One file of ``config/table``; its name is the table's."""

    title: str = MISSING
    blocks: list[BlockSpec] = MISSING
    note: str = ""
    name: str = ""

    @property
    def scales(self) -> list[str]:
        """The scales that any block has, in the order in which the file names them."""
        return list(dict.fromkeys(scale for block in self.blocks for scale in block.scales))


def table_names(folder: Path = TABLE_FOLDER) -> list[str]:
    """The tables there are, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_table_spec(name: str, folder: Path = TABLE_FOLDER) -> TableSpec:
    """Read and check ``<folder>/<name>.yaml``. A mistake in it is a UserError that names the file and the key."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = table_names(folder)
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"
        raise UserError(f"no table {name!r}: {hint}")
    try:
        raw = OmegaConf.to_container(OmegaConf.load(path))
    except (YAMLError, OSError, OmegaConfBaseException) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from error
    spec = _typed(TableSpec, raw, f"{path}: ")
    spec.name = name
    _check(spec, path)
    return spec


def _typed(schema: Any, raw: Any, where: str) -> Any:
    # Piece by piece, because an error within a list of schemas does not say which of its elements is meant.
    if not isinstance(raw, dict):
        raise UserError(f"{where.rstrip('.')}: a mapping is expected, not {str(raw)[:40]!r}")
    parts: dict[str, Any] = {}
    for item in fields(schema):
        inner = get_args(item.type)[-1:]
        if inner and is_dataclass(inner[0]) and item.name in raw:
            parts[item.name] = _children(inner[0], raw[item.name], get_origin(item.type), f"{where}{item.name}")
    try:
        rest = {key: value for key, value in raw.items() if key not in parts}
        flat = OmegaConf.merge(OmegaConf.structured(schema), rest, {name: type(part)() for name, part in parts.items()})
        typed = OmegaConf.to_object(flat)
    except OmegaConfBaseException as error:
        key = str(error.full_key or error.key or "")
        raise UserError(f"{where}{key}: {str(error.msg or error).splitlines()[0]}") from error
    for name, part in parts.items():
        setattr(typed, name, part)
    return typed


def _children(schema: Any, raw: Any, kind: Any, where: str) -> Any:
    if not isinstance(raw, kind) or not raw:
        raise UserError(f"{where}: a {'list' if kind is list else 'mapping'} with something in it is expected")
    if isinstance(raw, list):
        return [_typed(schema, item, f"{where}[{index}].") for index, item in enumerate(raw)]
    return {str(key): _typed(schema, item, f"{where}.{key}.") for key, item in raw.items()}


def _check(spec: TableSpec, path: Path) -> None:
    for number, block in enumerate(spec.blocks):
        where = f"{path}: blocks[{number}]"
        metrics = [column.metric for column in block.columns]
        groups = {row.group for row in block.rows}
        if len(set(metrics)) < len(metrics):
            raise UserError(f"{where}.columns: a metric stands twice")
        for column in block.columns:
            _check_format(column.format, f"{where}.columns: {column.metric}: format")
            _check_format(column.paper_format, f"{where}.columns: {column.metric}: paper_format")
        for row in block.rows:
            _check_row(row, metrics, f"{where}.rows: {row.label}")
        for scale, part in block.scales.items():
            if not part.seeds or len(set(part.seeds)) < len(part.seeds):
                raise UserError(f"{where}.scales.{scale}.seeds: give at least one seed and none twice")
            for key, named in (("groups", part.groups), ("labels", part.labels)):
                if lost := sorted(set(named) - groups):
                    raise UserError(f"{where}.scales.{scale}.{key}: no row has the group {lost[0]!r}")


def _check_row(row: RowSpec, metrics: list[str], where: str) -> None:
    if lost := [metric for metric in row.paper if metric not in metrics]:
        raise UserError(f"{where}: paper.{lost[0]} has no column")
    if wrong := [metric for metric, numbers in row.paper.items() if len(numbers) not in (1, 2)]:
        raise UserError(f"{where}: paper.{wrong[0]} must be [value] or [mean, standard deviation]")
    if (row.role is Role.constant) != bool(row.constant) or (row.constant and row.overrides):
        raise UserError(f"{where}: a constant row has role constant, a constant and no overrides")


def _check_format(text: str, where: str) -> None:
    try:
        format(1.0, text)
        format(1.0, f"+{text}")
    except ValueError as error:
        raise UserError(f"{where} {text!r} is no format for a number") from error
