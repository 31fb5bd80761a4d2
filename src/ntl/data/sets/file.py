"""Questions and answers of one's own: a file, a folder from ``save_to_disk``, or a data set of the hub.

A split without a file of its own gets the training questions whose seeded hash is smallest: equal questions have equal
hashes, so that they land in one split, and the shares are exact, of the different questions.
"""

import csv
import io
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar

import numpy as np

from ntl.config.data import DELIMITERS, FileConfig, OwnDataConfig, find_file, is_on_hub, suffix_of
from ntl.data import raw
from ntl.data.chat import known_columns, said_in
from ntl.data.dataset import Log, Material, TextDataset, numbered
from ntl.data.files import decode, read_file
from ntl.numbers import parse_number
from ntl.numbers.text import format_number
from ntl.system.errors import UserError, needs
from ntl.system.hub import no_hub

# Where each row stands, for an error (``my.csv:812``, or ``my.parquet, row 812``), and its columns by name.
Rows = Iterator[tuple[str, dict[str, Any]]]
Columns = Callable[[Sequence[str]], Sequence[str]]  # those that are read, of the names of all
# Question and answer, and, where any row has earlier messages, these as JSON.
Turns = tuple[str, ...]
LONGEST_CELL = 1 << 28  # characters
SPLITS = ("train", "validation", "test")
MARK = "####"  # after which `ntl.evaluation` looks for the answer of a text


@dataclass(frozen=True)
class Table:
    """``read(columns)`` yields the rows; UserError for a missing column or a damaged row."""

    label: str
    read: Callable[[Columns], Rows]


class Pool:
    """The pairs of a table, with a seeded hash of what is asked, or of a text that answers nothing."""

    def __init__(self, pairs: list[Turns], seed: int) -> None:
        self.pairs, key = pairs, seed.to_bytes(8)
        texts = ("".join(before) + (question or answer) for question, answer, *before in pairs)
        digests = (blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts)
        self.hashes = np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)


class Own(TextDataset):
    """Rows of a user's own. A subclass says which ``columns`` it reads, and makes a row from their values."""

    splits = SPLITS
    test_splits = ("test",)
    rows_are: ClassVar[str] = "questions"
    config: OwnDataConfig

    def __init__(self, config: OwnDataConfig) -> None:
        super().__init__(config)
        licence = config.licence
        # Text whose licence is unknown is not published.
        self.origin = raw.Origin(  # pyright: ignore[reportAttributeAccessIssue]
            "files of one's own", licence or "unknown", "none given", bool(licence), files={}
        )

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """The rows in the order of their files."""
        tables = self._tables(data_dir, log)
        pools = {split: self._read(table) for split, table in tables.items()}
        chosen = {split: (pool, np.arange(len(pool.pairs))) for split, pool in pools.items()}
        chosen |= self._shared_out(pools["train"], [split for split in SPLITS if split not in pools])
        warnings = _overlaps(pools, self.rows_are)
        for split, most in (("train", self.config.train_rows), ("test", self.config.test_rows)):
            pool, indices = chosen[split]
            if 0 < most < len(indices):
                order = np.argsort(pool.hashes[indices], kind="stable")
                chosen[split] = pool, np.sort(indices[order[:most]])
                warnings.append(f"{split}: {most:,} of {len(indices):,} rows are used (dataset.{split}_rows={most}).")
        splits = {
            split: numbered(split, [pool.pairs[index] for index in indices], len(indices))
            for split, (pool, indices) in chosen.items()
        }
        files = {split: table.label for split, table in tables.items()}
        remarks = {"licence": self.config.licence or "unknown", **({"warnings": warnings} if warnings else {})}
        return Material({**splits}, {"kind": "own files", "files": files}, remarks=remarks)

    @abstractmethod
    def columns(self, names: Sequence[str]) -> list[str]:
        """The columns that a row is made from, where these are all."""

    @abstractmethod
    def pair(self, row: dict[str, Any]) -> Turns | None:
        """Question and answer of a row, or None for one that is left out. ValueError says what is wrong with it."""

    def open(self, path: Path) -> dict[str, Table]:
        """As ``open_tables``."""
        return open_tables(path, header=self.config.header, cells=self.config.cells)

    def _tables(self, data_dir: Path, log: Log) -> dict[str, Table]:
        """Split -> the table that it is read from; train at least."""
        tables = dict[str, Table]()
        for split, path in self.config.paths.items():
            log(f"reading {path}")
            if is_on_hub(path, data_dir):
                found = hub_tables(path, self.config.config_name)
            else:
                found = self.open(find_file(path, data_dir) or Path(path))
            chosen = found.get("", found.get(split))
            if chosen is None:
                raise UserError(f"{path}: no split {split!r}, only {', '.join(found)}; give a file that has its rows.")
            tables[split] = chosen
            if split == "train":
                tables |= {other: found[other] for other in SPLITS if other in found}
                if unread := [other for other in found if other not in ("", *SPLITS)]:
                    log(f"{path}: its splits {', '.join(unread)} are not read; train, validation and test are.")
        return tables

    def _read(self, table: Table) -> Pool:
        pairs: list[Turns] = []
        for place, row in table.read(self.columns):
            try:
                if pair := self.pair(row):
                    "".join(pair).encode()
                    pairs.append(pair)
            except UnicodeEncodeError as error:
                raise UserError(f"{place}: half of a surrogate pair, which UTF-8 cannot hold.") from error
            except ValueError as error:
                raise UserError(f"{place}: {error}.") from error
        if not pairs:
            raise UserError(f"{table.label}:1: no rows.")
        if any(len(pair) > 2 for pair in pairs):
            pairs = [(*pair, "")[:3] for pair in pairs]
        return Pool(pairs, self.config.seed)

    def _shared_out(self, pool: Pool, missing: list[str]) -> dict[str, tuple[Pool, np.ndarray]]:
        """The rows of ``train``, and of the splits that are cut from it."""
        different = np.unique(pool.hashes)
        counts = [max(1, round(getattr(self.config.splits, split) * len(different))) for split in missing]
        if sum(counts) >= len(different):
            raise UserError(
                f"{self.config.path}: {len(different)} different {self.rows_are}, of which {', '.join(missing)} take "
                f"{sum(counts)}, so that none is left for training; give more, make dataset.splits smaller, or give "
                "files of these splits by dataset.validation_path and dataset.test_path."
            )
        places, ends = np.searchsorted(different, pool.hashes), np.cumsum([*counts, len(different)])
        split_of = np.searchsorted(ends, places, side="right")
        return {split: (pool, np.flatnonzero(split_of == at)) for at, split in enumerate([*missing, "train"])}


class File(Own):
    """A question is a column or a template of columns, an answer a column; ``config.answers`` says what it must be."""

    config: FileConfig

    def columns(self, names: Sequence[str]) -> list[str]:
        """Those of the question, then that of the answer; or those that are known by their names."""
        wanted = [*self.config.columns, self.config.answer]
        if wanted == ["question", "answer"] and not set(wanted) <= set(names):
            return known_columns(names) or wanted
        return wanted

    @property
    def metrics(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the answers are."""
        return "text" if self.config.answers == "text" else "number"

    @cached_property
    def _template(self) -> list[tuple[str, str | None]]:
        return [(literal, name) for literal, name, *_ in Formatter().parse(self.config.template)]

    def pair(self, row: dict[str, Any]) -> Turns:
        config, before = self.config, list[str]()
        if config.answer in row:
            texts = {name: text_of(name, value) for name, value in row.items()}
            filled = (literal + (texts[name] if name else "") for literal, name in self._template)
            question, answer = "".join(filled) or texts[config.question], texts[config.answer]
        else:
            question, answer, *before = said_in(row, text_of)
        if before and config.format == "plain":
            raise ValueError("messages before the last question are for a chat template; set dataset.format=chat")
        answer = answer.strip() if config.answers == "number" else answer
        self._check(question, answer)
        return question, answer, *before

    def scored(self, answer: str) -> str:
        return answer.rpartition(self.config.mark)[2].strip() if self.config.answers == "reasoning" else answer

    def _check(self, question: str, answer: str) -> None:
        config = self.config
        if not question.strip():
            raise ValueError("empty question")
        if not answer.strip():
            raise ValueError("empty answer")
        if config.answers == "number" and parse_number(answer) is None:
            raise ValueError(
                f"the answer {shown(answer)} is no number; dataset.answers=reasoning or text takes other answers"
            )
        if config.answers == "reasoning":
            if answer.count(config.mark) != 1 or parse_number(self.scored(answer)) is None:
                raise ValueError(
                    f"the answer does not end in one {config.mark!r} and a number; dataset.mark= sets another mark"
                )
            if config.mark != MARK and MARK in answer:
                raise ValueError(f"the answer has {MARK!r} in it, which is read as the mark {config.mark!r}")


def _overlaps(pools: dict[str, Pool], rows_are: str) -> list[str]:
    lines = []
    for split, other in combinations([split for split in ("test", "validation", "train") if split in pools], 2):
        if count := int(np.isin(pools[split].hashes, pools[other].hashes).sum()):
            lines.append(
                f"{count:,} of {len(pools[split].pairs):,} {split} {rows_are} are also in {other}: scores on them are "
                f"no scores on new {rows_are}."
            )
    return lines


def text_of(column: str, value: Any) -> str:
    """The value of a column as text. A number is written out: 1e-7 as 0.0000001, 1.0 as 1.

    ValueError for a value that is neither text nor a finite number.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | Decimal):
        raise ValueError(f"{column!r} is {'null' if value is None else shown(value)}, neither text nor a number")
    if not (number := Decimal(str(value))).is_finite():
        raise ValueError(f"{column!r} is {value}, no finite number")
    return format_number(number)


def shown(value: Any) -> str:
    """A value in an error, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_text(path: Path) -> str:
    """A UTF-8 file, plain or ``.gz``, without a byte order mark."""
    return decode(read_file(path), str(path)).removeprefix("\ufeff")


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
        return {"": Table(str(path), lambda columns: _parquet(path, columns))}
    if delimiter := DELIMITERS.get(suffix):
        return {"": Table(str(path), lambda columns: _cells(path, columns, delimiter, header, cells))}
    return {"": Table(str(path), lambda columns: _json(path, columns))}


def hub_tables(name: str, config_name: str) -> dict[str, Table]:
    """Split -> table of ``owner/name``, from the cache or the hub. UserError in one line where it is in neither."""
    with needs("train"):
        import datasets
        from datasets import config
    if problem := no_hub():
        # Otherwise the libraries ask again and again before they read the cache.
        config.HF_HUB_OFFLINE = True
    try:
        return _of_splits(name, datasets.load_dataset(name, config_name or None))
    except Exception as error:  # of many libraries, for names, configs, files and networks
        reason = f"not in the local cache, and {problem}" if problem else _line(error)
        raise UserError(
            f"dataset.path={name}: no such file here, and as a data set of the hub: {reason}. Either connect once, so "
            "that it is cached; or write it there with save_to_disk, and give a copy of that folder by dataset.path=."
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


def _indices(label: str, names: Sequence[str], columns: Columns) -> dict[str, int]:
    found = dict.fromkeys(columns(names), 0)
    for column in found:
        if names.count(column) > 1:
            raise UserError(f"{label}: {names.count(column)} columns are called {column!r}; rename all but one.")
        if column not in names:
            raise UserError(
                f"{label}: no column {column!r}, it has {', '.join(map(repr, names))}; name yours by "
                "dataset.question=, or in dataset.template=, and by dataset.answer=; of dataset=text by "
                "dataset.column=."
            )
    return {column: names.index(column) for column in found}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} occurs twice; remove one")
        found[name] = value
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
    first = text.lstrip("\r\n").partition("\n")[0]
    if header and delimiter == "," and "," not in first and ";" in first:
        delimiter = ";"
    quoting = csv.QUOTE_NONE if cells == "plain" else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting, strict=True)
    names, indices = list[str](), dict[str, int]()
    while True:
        place = f"{path}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise UserError(
                f"{path}:{reader.line_num}: {error}; where quotation marks are characters like any other, set "
                "dataset.cells=plain."
            ) from error
        if row is None:
            return
        if row and not names:
            names = row if header else [str(at + 1) for at in range(len(row))]
            indices = _indices(place, names, columns)
            row = [] if header else row
        if not row:
            continue
        if len(row) != len(names):
            raise UserError(f"{place}: {len(row)} cells, and {len(names)} in the first row; write as many in each.")
        yield place, {column: row[index] for column, index in indices.items()}


def _parquet(path: Path, columns: Columns) -> Rows:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read ({_line(error)}).") from error
    yield from _arrow(str(path), table, columns)


def _of_dataset(label: str, dataset: Any) -> Table:
    return Table(label, lambda columns: _arrow(label, dataset.with_format("arrow")[:], columns))


def _of_splits(label: str, splits: Any) -> dict[str, Table]:
    return {str(name): _of_dataset(f"{label}, {name}", dataset) for name, dataset in splits.items()}


def _arrow(label: str, table: Any, columns: Columns) -> Rows:
    chosen = _indices(label, table.column_names, columns)
    values = [_values(table.column(index)) for index in chosen.values()]
    for number, row in enumerate(zip(*values, strict=True), 1):
        yield f"{label}, row {number}", dict(zip(chosen, row, strict=True))


def _values(column: Any) -> Iterator[Any]:
    """The values of a column. Those of narrow floats keep their type, in which 0.1 is written with one digit."""
    narrow = {"float": np.float32, "halffloat": np.float16}.get(str(column.type))
    for chunk in column.chunks:
        for value in chunk.to_pylist():
            yield value if narrow is None or value is None else narrow(value)
