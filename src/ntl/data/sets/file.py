"""Questions and answers of one's own: a file, a folder from ``save_to_disk``, or a data set of the hub.

Each source is read once, checked, and kept in a nameless file on disk together with a hash of each question in memory.
A split without a file of its own gets the training questions whose seeded hash is smallest: equal questions have equal
hashes, so that they land in one split, and the shares are exact, of the different questions.
"""

import tempfile
import time
from abc import abstractmethod
from array import array
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from string import Formatter
from typing import IO, Any, ClassVar

import numpy as np

from ntl.config.data import FileConfig, OwnDataConfig, find_file, is_on_hub
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset, numbered
from ntl.data.files import Pair, map_open
from ntl.data.formats import Table, hub_tables, open_tables, written
from ntl.numbers import parse_number
from ntl.system.errors import UserError, one_line_errors

SPLITS = ("train", "validation", "test")
MARK = "####"  # after which `ntl.evaluation` looks for the answer of a text
EVERY = 1 << 16


class Own(TextDataset):
    """Rows of a user's own. A subclass says which ``columns`` it reads, and makes a row from their values."""

    splits = SPLITS
    test_splits = ("test",)
    rows_are: ClassVar[str] = "questions"
    config: OwnDataConfig

    def __init__(self, config: OwnDataConfig) -> None:
        super().__init__(config)
        self._origin = raw.Origin(
            home="files of one's own",
            licence=config.licence or "unknown",
            cite="none given",
            publishable=bool(config.licence),
            files={},
        )

    @property
    def origin(self) -> raw.Origin:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Text whose licence is unknown is not published."""
        return self._origin

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """The rows in the order of their files."""
        tables = self._tables(data_dir, log)
        pools = {split: self._read(table, data_dir, log) for split, table in tables.items()}
        chosen = self._shared_out(pools["train"], [split for split in SPLITS if split not in pools])
        chosen |= {split: (pool, np.arange(len(pool))) for split, pool in pools.items() if split not in chosen}
        warnings = _overlaps(pools, self.rows_are)
        for split, most in (("train", self.config.train_rows), ("test", self.config.test_rows)):
            pool, indices = chosen[split]
            if 0 < most < len(indices):
                order = np.argsort(pool.hashes[indices], kind="stable")
                chosen[split] = pool, np.sort(indices[order[:most]])
                warnings.append(f"{split}: {most:,} of {len(indices):,} rows are used (dataset.{split}_rows={most}).")
        splits = {split: numbered(split, pool.take(each), len(each)) for split, (pool, each) in chosen.items()}
        files = {split: table.label for split, table in tables.items()}
        remarks = {**self.origin.remarks, **({"warnings": warnings} if warnings else {})}
        return Material({**splits}, {"kind": "own files", "files": files}, remarks=remarks)

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The columns that a row is made from."""

    @abstractmethod
    def pair(self, values: list[Any]) -> Pair | None:
        """Question and answer of a row, or None for one that is left out. ValueError says what is wrong with it."""

    def open(self, path: Path) -> dict[str, Table]:
        """As ``open_tables``."""
        return open_tables(path, header=self.config.header, cells=self.config.cells)

    def _tables(self, data_dir: Path, log: Log) -> dict[str, Table]:
        """Split -> the table that it is read from; train at least."""
        config, tables = self.config, dict[str, Table]()
        for split, path in config.paths.items():
            log(f"reading {path}")
            if is_on_hub(path, data_dir):
                found = hub_tables(path, config.config_name)
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

    def _read(self, table: Table, scratch: Path, log: Log) -> "Pool":
        pool = Pool(scratch, self.config.seed)
        shown = time.monotonic()
        with one_line_errors("write prepared data to", scratch):
            for number, values in table.read(self.columns):
                try:
                    if pair := self.pair(values):
                        pool.add(*pair)
                except ValueError as error:
                    raise UserError(f"{table.place(number)}: {_reason(error)}.") from error
                if not len(pool) % EVERY and time.monotonic() - shown > 10:
                    shown = time.monotonic()
                    log(f"read {len(pool):,} rows of {table.label}")
        if not len(pool):
            raise UserError(f"{table.place(1)}: no rows.")
        return pool.closed()

    def _shared_out(self, pool: "Pool", missing: list[str]) -> "dict[str, tuple[Pool, np.ndarray]]":
        """The rows of ``train``, and of the splits that are cut from it."""
        different = np.unique(pool.hashes)
        first, chosen = 0, dict[str, tuple[Pool, np.ndarray]]()
        if len(different) <= len(missing):
            raise UserError(
                f"{self.config.path}: {len(different)} different {self.rows_are}, of which {', '.join(missing)} and "
                "train each need one; give more, or files of these splits by dataset.validation_path and test_path."
            )
        places = np.searchsorted(different, pool.hashes)
        for split in missing:
            count = max(1, round(getattr(self.config.splits, split) * len(different)))
            chosen[split] = pool, np.flatnonzero((first <= places) & (places < first + count))
            first += count
        if first >= len(different):
            raise UserError(
                f"{self.config.path}: {len(different)} different {self.rows_are}, and the shares of dataset.splits "
                "leave none for training; give more rows, or make them smaller."
            )
        return chosen | {"train": (pool, np.flatnonzero(places >= first))}


class File(Own):
    """A question is a column or a template of columns, an answer a column; ``config.answers`` says what it must be."""

    config: FileConfig

    @property
    def columns(self) -> list[str]:
        """Those of the question, then that of the answer."""
        return [*self.config.columns, self.config.answer]

    @property
    def metrics(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the answers are."""
        return "text" if self.config.answers == "text" else "number"

    @cached_property
    def _template(self) -> list[tuple[str, bool]]:
        return [(literal, bool(name)) for literal, name, *_ in Formatter().parse(self.config.template)]

    def pair(self, values: list[Any]) -> Pair:
        *texts, answer = [text_of(name, value) for name, value in zip(self.columns, values, strict=True)]
        rest = iter(texts)
        question = "".join(literal + (next(rest) if filled else "") for literal, filled in self._template) or texts[0]
        answer = answer.strip() if self.config.answers == "number" else answer
        if fault := self.fault(question, answer):
            raise ValueError(fault)
        return question, answer

    def scored(self, answer: str) -> str:
        return answer.rpartition(self.config.mark)[2].strip() if self.config.answers == "reasoning" else answer

    def fault(self, question: str, answer: str) -> str | None:
        config = self.config
        if not question.strip():
            return "empty question"
        if not answer.strip():
            return "empty answer"
        if config.answers == "text":
            return None
        if config.answers == "number":
            if parse_number(answer) is not None:
                return None
            return f"the answer {_shown(answer)} is no number; dataset.answers=reasoning or text takes other answers"
        if answer.count(config.mark) != 1 or parse_number(self.scored(answer)) is None:
            return f"the answer does not end in one {config.mark!r} and a number; dataset.mark= sets another mark"
        if config.mark != MARK and MARK in answer:
            return f"the answer has {MARK!r} in it, which is read as the mark {config.mark!r}"
        return None


class Pool:
    """Pairs of text in a nameless file; of each only two offsets and the hash of its question stay in memory."""

    def __init__(self, scratch: Path, seed: int) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - `closed` closes it
        self._key = seed.to_bytes(8)
        self._size = 0
        self._ends, self._hashes = array("Q"), array("Q")

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, question: str, answer: str) -> None:
        first, second = question.encode(), answer.encode()
        # A text without a question is known by itself.
        whose = first or second
        self._file.write(first + second)
        self._ends.append(self._size + len(first))
        self._size += len(first) + len(second)
        self._ends.append(self._size)
        self._hashes.append(int.from_bytes(blake2b(whose, digest_size=8, key=self._key).digest()))

    def closed(self) -> "Pool":
        """Call after the last ``add``."""
        self._file.flush()
        self.data = map_open(self._file)
        self._file.close()
        self.ends = np.frombuffer(self._ends, dtype=np.uint64).reshape(-1, 2)
        self.hashes = np.frombuffer(self._hashes, dtype=np.uint64)
        return self

    def take(self, indices: np.ndarray) -> Iterator[Pair]:
        """The pairs at these indices, in their order."""
        for start in range(0, len(indices), 4096):
            some = indices[start : start + 4096]
            befores = np.where(some > 0, self.ends[some - 1, 1], 0)
            for before, (middle, end) in zip(befores.tolist(), self.ends[some].tolist(), strict=True):
                yield self.data[before:middle].decode(), self.data[middle:end].decode()


def text_of(column: str, value: Any) -> str:
    """The value of a column as text. ValueError for one that is neither text nor a number."""
    try:
        text = written(value)
    except ValueError as error:
        raise ValueError(f"{column!r} is {value}, no finite number") from error
    if text is None:
        raise ValueError(f"{column!r} is {'null' if value is None else _shown(value)}, neither text nor a number")
    return text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _reason(error: ValueError) -> str:
    return "half of a surrogate pair, which UTF-8 cannot hold" if isinstance(error, UnicodeEncodeError) else str(error)


def _overlaps(pools: dict[str, Pool], rows_are: str) -> list[str]:
    lines = []
    for split, other in (("test", "train"), ("validation", "train"), ("test", "validation")):
        if split in pools and other in pools:
            count = int(np.isin(pools[split].hashes, pools[other].hashes).sum())
            if count:
                lines.append(
                    f"{count:,} of {len(pools[split]):,} {split} {rows_are} are also in {other}: scores on them are "
                    f"no scores on new {rows_are}."
                )
    return lines
