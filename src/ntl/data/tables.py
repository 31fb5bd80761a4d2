"""Rows of a user's own tables: CSV, JSON, Parquet, a folder from ``save_to_disk``, or a data set of the hub.

No type is inferred: a cell of CSV is its text, and a decimal of JSON is as it is written.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from ntl.data.raw import read_text
from ntl.system.errors import UserError, needs

# Where each row stands, for an error (``my.csv:812``, or ``my.parquet, row 812``), and its columns by name.
Rows = Iterator[tuple[str, dict[str, Any]]]
Columns = Callable[[Sequence[str]], Sequence[str]]  # those that are read, of the names of all
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".jsonl", ".ndjson", ".json", *DELIMITERS, ".parquet")
LONGEST_CELL, LONGEST_HEAD = 1 << 28, 1 << 16  # characters


@dataclass(frozen=True)
class Table:
    """``read(columns)`` yields the rows; UserError for a missing column or a damaged row."""

    label: str
    read: Callable[[Columns], Rows]


def suffix_of(path: Path) -> str:
    """``.jsonl`` of ``my.jsonl`` and of ``my.JSONL.gz``."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def open_tables(path: Path, *, header: bool, cells: str) -> dict[str, Table]:
    """Split -> table of a folder that ``save_to_disk`` wrote; else one table, named by the empty text.

    ``header`` and ``cells`` describe CSV and TSV (``ntl.data.sets.own.OwnDataConfig``).
    """
    if path.is_dir():
        from datasets import load_from_disk

        try:
            return _of_datasets(str(path), load_from_disk(str(path)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: save_to_disk wrote no such folder ({_line(error)}).") from error
    suffix = suffix_of(path)
    if suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        try:
            table = parquet.read_table(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"{path}: cannot be read ({_line(error)}).") from error
        return {"": Table(str(path), lambda columns: _arrow(str(path), table, columns))}
    if delimiter := DELIMITERS.get(suffix):
        return {"": Table(str(path), lambda columns: _cells(path, columns, delimiter, header, cells))}
    return {"": Table(str(path), lambda columns: _json(path, columns))}


def hub_tables(name: str, config_name: str) -> dict[str, Table]:
    """Split -> table of ``owner/name``, from the cache or the hub. UserError in one line where it is in neither."""
    with needs("train"):
        import datasets
    try:
        return _of_datasets(name, datasets.load_dataset(name, config_name or None))
    except Exception as error:  # of many libraries, for names, configs, files and networks
        raise UserError(
            f"dataset.path={name}: no such file here, and as a data set of the hub: {_line(error)}. Either connect "
            "once, so that it is cached; or write it there with save_to_disk, and give that folder by dataset.path=."
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


def _indices(label: str, names: Sequence[str], columns: Columns) -> dict[str, int]:
    found = list(dict.fromkeys(columns(names)))
    if missing := [column for column in found if column not in names]:
        raise UserError(
            f"{label}: no column {missing[0]!r}, it has {', '.join(map(repr, names))}; name yours by dataset.question=,"
            " or in dataset.template=, and by dataset.answer=; of dataset=text by dataset.column=."
        )
    if twice := [column for column in found if names.count(column) > 1]:
        raise UserError(f"{label}: {names.count(twice[0])} columns are called {twice[0]!r}; rename all but one.")
    return {column: names.index(column) for column in found}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    for name, _ in pairs if len(found) < len(pairs) else ():
        if sum(name == other for other, _ in pairs) > 1:
            raise ValueError(f"{name!r} occurs twice; remove one")
    return found


def _json(path: Path, columns: Columns) -> Rows:
    """One object a line, or one list of objects."""
    decoder, text = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_unique), read_text(path)
    is_list = text.lstrip().startswith("[")
    parts = [(str(path), text)] if is_list else ((f"{path}:{at}", part) for at, part in enumerate(text.split("\n"), 1))
    for label, part in parts:
        if not part.strip():
            continue
        try:
            found = decoder.decode(part)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{label}: not {'JSON' if is_list else 'a JSON object'} ({error}).") from error
        rows = [(f"{path}, row {at}", row) for at, row in enumerate(found, 1)] if is_list else [(label, found)]
        for place, row in rows:
            if not isinstance(row, dict):
                raise UserError(f"{place}: a JSON {type(row).__name__}, not an object.")
            yield place, {column: row[column] for column in _indices(place, list(row), columns)}


def _cells(path: Path, columns: Columns, delimiter: str, header: bool, cells: str) -> Rows:
    csv.field_size_limit(LONGEST_CELL)
    text = read_text(path)
    quoting = csv.QUOTE_NONE if cells == "plain" else csv.QUOTE_MINIMAL
    names, indices, end = list[str](), dict[str, int](), 0
    try:
        if delimiter == ",":  # what is called CSV may be divided by other signs
            names_by = {each: _names(text, each, quoting, header) for each in ",;\t|"}
            fitting = [each for each, found in names_by.items() if {*columns(found)} <= {*found}]
            if len(fitting) > 1 and not header:
                raise UserError(
                    f"{path}:1: these rows may be divided by {' or by '.join(map(repr, fitting))}; write the names of "
                    "the columns in a first row, and leave dataset.header out."
                )
            delimiter = next(iter(fitting), max(names_by, key=lambda each: len(names_by[each])))
        reader = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting, strict=True)
        for row in reader:
            place, end = f"{path}:{end + 1}", reader.line_num
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


def _names(text: str, delimiter: str, quoting: Any, header: bool) -> list[str]:
    """The columns that this sign makes; none where there is no header, and it does not divide all rows alike."""
    lines = text.lstrip("\r\n")[:LONGEST_HEAD].splitlines()[:1] if header else io.StringIO(text)
    rows = csv.reader(lines, delimiter=delimiter, quoting=quoting)
    if header:
        return next(rows, [])
    widths = {len(row) for row in rows if row}
    return [str(at + 1) for at in range(*widths)] if len(widths) == 1 and widths != {1} else []


def _of_datasets(label: str, found: Any) -> dict[str, Table]:
    if not isinstance(found, dict):
        return {"": Table(label, lambda columns: _arrow(label, found.with_format("arrow")[:], columns))}
    return {str(split): _of_datasets(f"{label}, {split}", dataset)[""] for split, dataset in found.items()}


def _arrow(label: str, table: Any, columns: Columns) -> Rows:
    def values(column: Any) -> Iterator[Any]:
        # Those of narrow floats keep their type, in which 0.1 is written with one digit.
        kind = {"float": np.float32, "halffloat": np.float16}.get(str(getattr(column.type, "value_type", column.type)))
        for chunk in column.chunks:
            yield from (value if kind is None or value is None else kind(value) for value in chunk.to_pylist())

    chosen = _indices(label, table.column_names, columns)
    rows = zip(*(values(table.column(index)) for index in chosen.values()), strict=True)
    for number, row in enumerate(rows, 1):
        yield f"{label}, row {number}", dict(zip(chosen, row, strict=True))
