"""Questions and answers of one's own: a file, a folder from ``save_to_disk``, or a data set of the hub.

A split without a file of its own gets the training questions whose seeded hash is smallest: equal questions have equal
hashes, so that they land in one split, and the shares are exact, of the different questions.
"""

from abc import abstractmethod
from functools import cached_property
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar

import numpy as np

from ntl.config.data import FileConfig, OwnDataConfig, find_file, is_on_hub
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset, numbered
from ntl.data.files import Pair
from ntl.data.formats import Table, hub_tables, open_tables, shown, text_of
from ntl.numbers import parse_number
from ntl.system.errors import UserError

SPLITS = ("train", "validation", "test")
MARK = "####"  # after which `ntl.evaluation` looks for the answer of a text


class Pool:
    """The pairs of a table, with a seeded hash of each question; a text without a question is known by itself."""

    def __init__(self, pairs: list[Pair], seed: int) -> None:
        self.pairs, key = pairs, seed.to_bytes(8)
        digests = (blake2b((first or second).encode(), digest_size=8, key=key).digest() for first, second in pairs)
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
        pairs = []
        for place, values in table.read(self.columns):
            try:
                if pair := self.pair(values):
                    "".join(pair).encode()
                    pairs.append(pair)
            except UnicodeEncodeError as error:
                raise UserError(f"{place}: half of a surrogate pair, which UTF-8 cannot hold.") from error
            except ValueError as error:
                raise UserError(f"{place}: {error}.") from error
        if not pairs:
            raise UserError(f"{table.label}:1: no rows.")
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
            return f"the answer {shown(answer)} is no number; dataset.answers=reasoning or text takes other answers"
        if answer.count(config.mark) != 1 or parse_number(self.scored(answer)) is None:
            return f"the answer does not end in one {config.mark!r} and a number; dataset.mark= sets another mark"
        if config.mark != MARK and MARK in answer:
            return f"the answer has {MARK!r} in it, which is read as the mark {config.mark!r}"
        return None


def _overlaps(pools: dict[str, Pool], rows_are: str) -> list[str]:
    lines = []
    for split, other in combinations([split for split in ("test", "validation", "train") if split in pools], 2):
        if count := int(np.isin(pools[split].hashes, pools[other].hashes).sum()):
            lines.append(
                f"{count:,} of {len(pools[split].pairs):,} {split} {rows_are} are also in {other}: scores on them are "
                f"no scores on new {rows_are}."
            )
    return lines
