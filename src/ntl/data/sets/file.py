"""Questions and answers of one's own: a file, a folder from ``save_to_disk``, or a data set of the hub.

A split without a file of its own gets the training questions whose seeded hash is smallest: equal questions have equal
hashes, so that they land in one split, and the shares are exact, of the different questions.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar, TypeVar

import numpy as np

from ntl.config.data import PLAIN_NUMBERS, FileConfig, OwnDataConfig, find_file, is_on_hub
from ntl.data import raw
from ntl.data.chat import known_columns, said_in
from ntl.data.dataset import Example, Log, Material, TextDataset, numbered
from ntl.data.tables import Table, hub_tables, open_tables
from ntl.numbers import parse_number
from ntl.numbers.text import format_number
from ntl.numbers.written import NAMES, Column, read_value
from ntl.system.errors import UserError

Made = TypeVar("Made")
# Question and answer, and, where any row has earlier messages, these as JSON.
Turns = tuple[str, ...]
SPLITS = ("train", "validation", "test")
MARK = "####"  # after which `ntl.evaluation` looks for the answer of a text
FEW = 10  # rows to train on
GROUPED = (
    "{path}: {count:,} answers have thousands separators, which a model learns to write; dataset.number_format=auto "
    "leaves them out."
)


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
        self.look(tables)
        pools = {split: self._read(table) for split, table in tables.items()}
        chosen = {split: (pool, np.arange(len(pool.pairs))) for split, pool in pools.items()}
        chosen |= self._shared_out(pools["train"], [split for split in SPLITS if split not in pools])
        warnings = [*self.remarks(pools), *_overlaps(pools, self.rows_are)]
        rows = {split: len(indices) for split, (_, indices) in chosen.items()}
        if rows["train"] < FEW:
            warnings.append(
                f"{self.config.path}: training rows: {rows['train']}, validation: {rows['validation']}, test: "
                f"{rows['test']}; a model learns nothing from so few."
            )
        for split, most in (("train", self.config.train_rows), ("test", self.config.test_rows)):
            pool, indices = chosen[split]
            if 0 < most < len(indices):
                order = np.argsort(pool.hashes[indices], kind="stable")
                chosen[split] = pool, np.sort(indices[order[:most]])
                warnings.append(f"{split}: {most:,} of {len(indices):,} rows are used (dataset.{split}_rows={most}).")
        splits = {
            split: _examples(split, [pool.pairs[i] for i in indices]) for split, (pool, indices) in chosen.items()
        }
        files = {split: table.label for split, table in tables.items()}
        remarks = {"licence": self.config.licence or "unknown", **({"warnings": warnings} if warnings else {})}
        return Material(splits, {"kind": "own files", "files": files}, remarks=remarks)

    def look(self, tables: Mapping[str, Table]) -> None:
        """Read all rows once before pairs are made of them, where what a row means depends on the others."""

    def remarks(self, pools: Mapping[str, Pool]) -> list[str]:
        """What is to be said of the rows that were read."""
        return []

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

    def each(self, table: Table, make: Callable[[str, dict[str, Any]], Made]) -> Iterator[Made]:
        """``make(place, row)`` of each row; its ValueError becomes a UserError that begins with the place."""
        for place, row in table.read(self.columns):
            try:
                yield make(place, row)
            except UnicodeEncodeError as error:
                raise UserError(f"{place}: half of a surrogate pair, which UTF-8 cannot hold.") from error
            except ValueError as error:
                raise UserError(f"{place}: {error}.") from error

    def _checked(self, _: str, row: dict[str, Any]) -> Turns | None:
        pair = self.pair(row)
        "".join(pair or ()).encode()
        return pair

    def _read(self, table: Table) -> Pool:
        pairs = [pair for pair in self.each(table, self._checked) if pair]
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
    _numbers: Column | None = None  # where the answers are read as people write numbers

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
        if self._numbers and answer and self._is_written(row):
            answer = self._numbers.write(answer)
        self._check(question, answer)
        return question, answer, *before

    @property
    def values(self) -> dict[str, Any]:
        """Without the setting that leaves answers as they are, which older folders do not have in their name."""
        return {key: value for key, value in super().values.items() if (key, value) != ("number_format", PLAIN_NUMBERS)}

    def look(self, tables: Mapping[str, Table]) -> None:
        if self.config.number_format == PLAIN_NUMBERS:
            return
        marks = {name: mark for mark, name in NAMES.items()}
        self._numbers = Column(marks.get(self.config.number_format, ""))
        for table in tables.values():
            for _ in self.each(table, self._see):
                pass
        self._numbers.settle()

    def _see(self, place: str, row: dict[str, Any]) -> None:
        answer = row[self.config.answer] if self.config.answer in row else said_in(row, text_of)[1]
        if self._numbers and not self._is_written(row):
            self._numbers.see_unit("", str(answer), place)
        elif self._numbers and answer.strip():
            self._numbers.see(answer.strip(), place)

    def _is_written(self, row: dict[str, Any]) -> bool:
        """Whether an answer is text: a number of JSON or Parquet can be read in one way only."""
        return isinstance(row.get(self.config.answer, row.get("output", "")), str)

    def remarks(self, pools: Mapping[str, Pool]) -> list[str]:
        if self._numbers:
            return [f"{self.config.path}: {self._numbers.said}."] if self._numbers.said else []
        if self.config.answers != "number":
            return []
        grouped = sum("," in answer for pool in pools.values() for _, answer, *_ in pool.pairs)
        return [GROUPED.format(path=self.config.path, count=grouped)] if grouped else []

    def scored(self, answer: str) -> str:
        return answer.rpartition(self.config.mark)[2].strip() if self.config.answers == "reasoning" else answer

    def _check(self, question: str, answer: str) -> None:
        config = self.config
        if not question.strip():
            raise ValueError("empty question")
        if not answer.strip():
            raise ValueError("empty answer")
        if config.answers == "number" and parse_number(answer) is None:
            other = "dataset.answers=reasoning or text takes other answers"
            remedy = "dataset.number_format=auto reads it" if read_value(answer) else other
            raise ValueError(f"the answer {shown(answer)} is no number; {remedy}")
        if config.answers == "reasoning":
            if answer.count(config.mark) != 1 or parse_number(self.scored(answer)) is None:
                raise ValueError(
                    f"the answer does not end in one {config.mark!r} and a number; dataset.mark= sets another mark"
                )
            if config.mark != MARK and MARK in answer:
                raise ValueError(f"the answer has {MARK!r} in it, which is read as the mark {config.mark!r}")


def _examples(split: str, pairs: list[Turns]) -> Iterator[Example]:
    for example, (_, _, *before) in zip(numbered(split, [pair[:2] for pair in pairs]), pairs, strict=True):
        yield {**example, "before": before[0]} if before else example


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
