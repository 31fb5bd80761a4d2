"""Rows of files in the usual formats, read one after another: memory does not grow with the file.

JSON lines, CSV and TSV are also read from ``.gz``. A table is read more than once only if it is asked to.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ntl.config.data import DELIMITERS, suffix_of
from ntl.data.files import parse_object, text_lines
from ntl.numbers.text import format_number
from ntl.system.errors import UserError, needs
from ntl.system.hub import no_hub

Values = list[Any]
# Numbered rows, with the values of the columns that were asked for.
Numbered = Iterator[tuple[int, Values]]
BATCH = 1000
JSON = json.JSONDecoder(parse_float=Decimal)


@dataclass(frozen=True)
class Table:
    """``read(columns)`` yields the rows' numbers and values; UserError for a missing column or a damaged row.

    ``place(number)`` names a row in an error: ``my.csv:812``, or ``my.parquet, row 812``, counted from 1.
    """

    label: str
    read: Callable[[Sequence[str]], Numbered]
    unit: str = ":"

    def place(self, number: int) -> str:
        return f"{self.label}{self.unit}{number}"


def written(value: Any) -> str | None:
    """A value as text; None if it is neither text nor a number. A number is written out: 1e-7 as 0.0000001, 1.0 as 1.

    ValueError for a number that is not finite.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return str(value) if isinstance(value, int) else format_number(Decimal(str(value)))


def open_tables(path: Path, *, header: bool, cells: str) -> dict[str, Table]:
    """Split -> table of a folder that ``save_to_disk`` wrote; else one table, named by the empty text.

    ``header`` and ``cells`` describe CSV and TSV (``ntl.config.data.FileConfig``).
    """
    if path.is_dir():
        from datasets import Dataset, load_from_disk

        try:
            found: Any = load_from_disk(str(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: save_to_disk wrote no such folder ({_line(error)}).") from error
        return {"": _of_dataset(str(path), found)} if isinstance(found, Dataset) else _of_splits(str(path), found)
    if (suffix := suffix_of(path)) == ".parquet":
        return {"": Table(str(path), lambda columns: _parquet(path, columns), ", row ")}
    if delimiter := DELIMITERS.get(suffix):
        return {"": Table(str(path), lambda columns: _cells(path, columns, delimiter, header, cells))}
    return {"": Table(str(path), lambda columns: _json_lines(path, columns))}


def hub_tables(name: str, config_name: str) -> dict[str, Table]:
    """Split -> table of ``owner/name``, from the cache or the hub. UserError in one line where it is in neither."""
    with needs("train"):
        import datasets
        from datasets import config
    problem = no_hub()
    if problem:
        # Otherwise the libraries ask again and again before they read the cache.
        config.HF_HUB_OFFLINE = True
    try:
        found: Any = datasets.load_dataset(name, config_name or None)
    except Exception as error:  # of many libraries, for names, configs, files and networks
        reason = f"not in the local cache, and {problem}" if problem else _line(error)
        raise UserError(
            f"dataset.path={name}: no such file here, and as a data set of the hub: {reason}. Either connect once, so "
            "that it is cached; or write it there with save_to_disk, and give a copy of that folder by dataset.path=."
        ) from error
    return _of_splits(name, found)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


def no_column(label: str, column: str, columns: Sequence[str]) -> UserError:
    return UserError(
        f"{label}: no column {column!r}, it has {', '.join(map(repr, columns))}; name yours by dataset.question=, or "
        "in dataset.template=, and by dataset.answer=; of dataset=text by dataset.column=."
    )


def _json_lines(path: Path, columns: Sequence[str]) -> Numbered:
    for number, line in text_lines(path):
        if not line.strip():
            continue
        if number == 1 and line.lstrip().startswith("["):
            raise UserError(f"{path}:1: a JSON list; write one object a line (jq -c '.[]').")
        row = parse_object(line, f"{path}:{number}", (), JSON.decode)
        try:
            yield number, [row[column] for column in columns]
        except KeyError as error:
            raise no_column(f"{path}:{number}", error.args[0], list(row)) from None


def _cells(path: Path, columns: Sequence[str], delimiter: str, header: bool, cells: str) -> Numbered:
    rows = SPLIT[cells](path, delimiter)
    indices: list[int] = []
    width = 0
    for number, row in rows:
        if not row:
            continue
        if not width:
            width = len(row)
            indices = _indices(f"{path}:{number}", row if header else [str(at + 1) for at in range(width)], columns)
            if header:
                continue
        if len(row) != width:
            raise UserError(
                f"{path}:{number}: {len(row)} cells, and {width} in the first row; dataset.cells= says how cells are "
                "written."
            )
        yield number, [row[index] for index in indices]


def _indices(label: str, names: Sequence[str], columns: Sequence[str]) -> list[int]:
    for column in columns:
        if names.count(column) > 1:
            raise UserError(f"{label}: {names.count(column)} columns are called {column!r}; rename all but one.")
        if column not in names:
            raise no_column(label, column, names)
    return [names.index(column) for column in columns]


def _quoted(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """As RFC 4180 says: a cell may stand in quotation marks, and then have delimiters and line ends in it."""
    csv.field_size_limit(1 << 28)
    number = 1
    reader = csv.reader((f"{line}\n" for _, line in text_lines(path)), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{number}: {error}; where quotation marks are characters like any other, set dataset.cells=plain."
        ) from error


def _plain(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Cells as they stand."""
    for number, line in text_lines(path):
        yield number, line.removesuffix("\r").split(delimiter) if line.strip() else []


def _escaped(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    r"""Cells as they stand, but for ``\`` before a delimiter or another ``\``, which is left out."""
    special = re.escape(delimiter)
    cell, escape = re.compile(rf"((?:[^\\{special}]|\\[\\{special}]?)*+){special}"), re.compile(rf"\\([\\{special}])")
    for number, line in text_lines(path):
        line = line.removesuffix("\r")
        if "\\" in line:
            # A backslash at the end escapes nothing, and is doubled so that it does not escape the added delimiter.
            lone = (len(line) - len(line.rstrip("\\"))) % 2
            yield number, [escape.sub(r"\1", each) for each in cell.findall(line + "\\" * lone + delimiter)]
        else:
            yield number, line.split(delimiter) if line.strip() else []


SPLIT = {"quoted": _quoted, "plain": _plain, "escaped": _escaped}


@contextmanager
def _readable(label: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{label}: cannot be read ({_line(error)}).") from error


def _parquet(path: Path, columns: Sequence[str]) -> Numbered:
    from pyarrow import parquet

    with _readable(str(path)), parquet.ParquetFile(path) as file:
        wanted = list(dict.fromkeys(columns))
        _indices(str(path), file.schema_arrow.names, wanted)
        number = 0
        for batch in file.iter_batches(BATCH, columns=wanted):
            values = {name: batch.column(name).to_pylist() for name in wanted}
            for row in zip(*(values[column] for column in columns), strict=True):
                number += 1
                yield number, list(row)


def _of_dataset(label: str, dataset: Any) -> Table:
    def read(columns: Sequence[str]) -> Numbered:
        _indices(label, dataset.column_names, columns)
        number = 0
        for batch in dataset.select_columns(list(dict.fromkeys(columns))).iter(BATCH):
            for row in zip(*(batch[column] for column in columns), strict=True):
                number += 1
                yield number, list(row)

    return Table(label, read, ", row ")


def _of_splits(label: str, splits: Any) -> dict[str, Table]:
    return {str(name): _of_dataset(f"{label}, {name}", dataset) for name, dataset in splits.items()}
