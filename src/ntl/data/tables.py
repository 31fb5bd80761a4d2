"""Rows of a user's own tables: CSV, JSON, Parquet, a folder from ``save_to_disk``, or a data set of the hub.

No type is inferred: a cell of CSV is its text, and a decimal of JSON is as it is written.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ntl.data.raw import read_text
from ntl.system.errors import UserError, needs

# Where each row stands, for an error (``my.csv:812``, or ``my.parquet, row 812``), and its columns by name.
Placed = Iterator[tuple[str, dict[str, Any]]]
Columns = Callable[[Sequence[str]], Sequence[str]]  # those that are read, of the names of all
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".jsonl", ".ndjson", ".json", *DELIMITERS, ".parquet")
LONGEST_CELL = 1 << 28  # characters


class Table(NamedTuple):
    """Rows that are read as they are asked for: UserError for a missing column or a damaged row."""

    label: str
    rows: Placed


def suffix_of(path: Path) -> str:
    """``.jsonl`` of ``my.jsonl`` and of ``my.JSONL.gz``."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def open_tables(path: Path, columns: Columns, *, header: bool, cells: str) -> dict[str, Table]:
    """Split -> table of a folder that ``save_to_disk`` wrote; else one table, named by the empty text.

    ``header`` and ``cells`` describe CSV and TSV (``ntl.data.sets.own.Own``).
    """
    label, suffix = str(path), suffix_of(path)
    try:
        if path.is_dir():
            from datasets import load_from_disk

            return _of_datasets(label, load_from_disk(label), columns)
        if suffix == ".parquet":
            from pyarrow import parquet

            return {"": Table(label, _arrow(label, parquet.read_table(path), columns))}
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "what save_to_disk writes" if path.is_dir() else "Parquet"
        raise UserError(f"{path}: cannot be read as {what} ({_line(error)}).") from error
    if delimiter := DELIMITERS.get(suffix):
        return {"": Table(label, _cells(path, columns, delimiter, header, cells))}
    return {"": Table(label, _json(path, columns))}


def hub_tables(name: str, config_name: str, columns: Columns) -> dict[str, Table]:
    """Split -> table of ``owner/name``, from the cache or the hub. UserError in one line where it is in neither."""
    with needs("train"):
        import datasets
    try:
        return _of_datasets(name, datasets.load_dataset(name, config_name or None), columns)
    except Exception as error:  # of many libraries, for names, configs, files and networks
        raise UserError(
            f"dataset.path={name}: no such file here, and as a data set of the hub: {_line(error)}. Either connect "
            "once, so that it is cached; or write it there with save_to_disk, and give that folder by dataset.path=."
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


def _indices(label: str, names: Sequence[str], columns: Columns) -> dict[str, int]:
    chosen = list(dict.fromkeys(columns(names)))
    for column in chosen:
        if column not in names:
            raise UserError(
                f"{label}: no column {column!r}, it has {', '.join(map(repr, names))}; name yours by dataset.question="
                ", or in dataset.template=, and by dataset.answer=; of dataset=text by dataset.column=."
            )
        if (count := names.count(column)) > 1:
            raise UserError(f"{label}: {count} columns are called {column!r}; rename all but one.")
    return {column: names.index(column) for column in chosen}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{max(names, key=names.count)!r} occurs twice; remove one")
    return values


def _json(path: Path, columns: Columns) -> Placed:
    """One object a line, or one list of objects."""
    decoder, text = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_unique), read_text(path)
    is_list = text.lstrip().startswith("[")
    parts = [(str(path), text)] if is_list else ((f"{path}:{at}", part) for at, part in enumerate(text.split("\n"), 1))
    for label, part in parts:
        if not part.strip():
            continue
        try:
            parsed = decoder.decode(part)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{label}: not {'JSON' if is_list else 'a JSON object'} ({error}).") from error
        rows = [(f"{path}, row {at}", row) for at, row in enumerate(parsed, 1)] if is_list else [(label, parsed)]
        for place, row in rows:
            if not isinstance(row, dict):
                raise UserError(f"{place}: a JSON {type(row).__name__}, not an object.")
            yield place, {column: row[column] for column in _indices(place, list(row), columns)}


def _cells(path: Path, columns: Columns, delimiter: str, header: bool, cells: str) -> Placed:
    csv.field_size_limit(LONGEST_CELL)
    text, quoting = read_text(path), csv.QUOTE_NONE if cells == "plain" else csv.QUOTE_MINIMAL

    def reader_of(sign: str, *, strict: bool = True) -> Any:
        return csv.reader(io.StringIO(text), delimiter=sign, quoting=quoting, strict=strict)

    names, indices, end = list[str](), dict[str, int](), 0
    try:
        if delimiter == ",":  # what is called CSV may be divided by other signs
            names_by = {sign: _names(filter(None, reader_of(sign, strict=False)), header) for sign in ",;\t|"}
            fitting = [sign for sign, of_sign in names_by.items() if {*columns(of_sign)} <= {*of_sign}]
            if len(fitting) > 1 and not header:
                raise UserError(
                    f"{path}:1: these rows may be divided by {' or by '.join(map(repr, fitting))}; write the names of "
                    "the columns in a first row, and leave dataset.header out."
                )
            delimiter = next(iter(fitting), max(names_by, key=lambda sign: len(names_by[sign])))
        reader = reader_of(delimiter)
        for row in reader:
            place, end = f"{path}:{end + 1}", reader.line_num  # the line that the row begins in
            if not row:
                continue
            if not names:
                names = row if header else [str(at + 1) for at in range(len(row))]
                indices = _indices(place, names, columns)
                if header:
                    continue
            if len(row) != len(names):
                raise UserError(f"{place}: {len(row)} cells, and {len(names)} in the first row; write as many in each.")
            yield place, {column: row[index] for column, index in indices.items()}
    except csv.Error as error:
        fault, remedy = error, "where quotation marks are characters like any other, set dataset.cells=plain"
        if "new-line" in str(error):
            fault, remedy = r"a \r within a row", r"end each row by \n, and quote a cell that has line ends in it"
        raise UserError(f"{path}:{end + 1}: {fault}; {remedy}.") from error


def _names(rows: Iterator[list[str]], header: bool) -> list[str]:
    """The columns that a sign makes; none where there is no header, and it does not divide all rows alike."""
    if header:
        return next(rows, [])
    widths = {len(row) for row in rows}
    return [str(at + 1) for at in range(max(widths))] if len(widths) == 1 and widths != {1} else []


def _of_datasets(label: str, data: Any, columns: Columns) -> dict[str, Table]:
    if isinstance(data, dict):
        return {str(name): _of_datasets(f"{label}, {name}", split, columns)[""] for name, split in data.items()}
    return {"": Table(label, _arrow(label, data, columns))}


def _arrow(label: str, data: Any, columns: Columns) -> Placed:
    def values(column: Any) -> Iterator[Any]:
        # Those of narrow floats keep their type, in which 0.1 is written with one digit.
        kind = {"float": np.float32, "halffloat": np.float16}.get(str(getattr(column.type, "value_type", column.type)))
        for chunk in column.chunks:
            yield from (value if kind is None or value is None else kind(value) for value in chunk.to_pylist())

    table = data.with_format("arrow")[:] if hasattr(data, "with_format") else data
    chosen = _indices(label, table.column_names, columns)
    rows = zip(*(values(table.column(index)) for index in chosen.values()), strict=True)
    for number, row in enumerate(rows, 1):
        yield f"{label}, row {number}", dict(zip(chosen, row, strict=True))
