"""Rows of a user's own: where they are, how they are read, and how they are divided into splits.

A split without a file of its own gets the training questions whose seeded hash is smallest: equal questions have equal
hashes, so that they land in one split, and shares are of the different questions, not of the rows.
"""

import json
from abc import abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ntl.config.folders import check_plain
from ntl.config.identity import find_file
from ntl.config.model import HUB_ID
from ntl.config.settings import Rule, nearest, setting, shorten
from ntl.data.dataset import Material, Row, TextDataset, numbered, rows
from ntl.data.tables import SUFFIXES, Table, hub_tables, open_tables, suffix_of
from ntl.data.weights import checked
from ntl.system.errors import UserError
from ntl.system.messages import logger

PLAIN_TEXT = (".txt", ".md")
# What `save_to_disk` of datasets writes for several splits, and for one.
SAVED = ("dataset_dict.json", "state.json")


@dataclass
class SharesConfig:
    """The share of the different questions, or documents, that goes into a split of which there is no file."""

    validation: float = setting(0.05, "Share of the validation split.", above=0, max=0.9)
    test: float = setting(0.1, "Share of the test split.", above=0, max=0.9)


class Told(NamedTuple):
    """A row, its place in the file, and a seeded hash of what is asked, or of a text that answers nothing."""

    place: str
    row: Row
    hash: int


@dataclass
class Own(TextDataset):
    """Rows of a user's own. A subclass says which ``columns`` it reads, and makes a row from their values."""

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    rows_are: ClassVar[str] = "questions"

    path: str = setting("", "File, folder that `save_to_disk` wrote, or `owner/name` of the hub.")
    validation_path: str = setting("", "The same for the validation split, if it has a file of its own.")
    test_path: str = setting("", "The same for the test split, if it has a file of its own.")
    config_name: str = setting("", "Configuration of a data set of the hub.")
    header: bool = setting(True, "The first row of CSV and TSV names the columns; else they are called 1, 2, ...")
    cells: str = setting(
        "quoted",
        "Cells of CSV and TSV have quotation marks around those that need them, or stand as they are.",
        choices=("quoted", "plain"),
    )
    splits: SharesConfig = setting(SharesConfig, "Shares of the splits that have no file of their own.")
    weight: str = setting("", "Column of the weight of each row in the loss; none: all rows count 1.")
    seed: int = setting(0, "Seed of the splits, and of the rows that are used.", min=0, max=2**32 - 1)
    train_rows: int = rows(0, "Training rows that are used; 0 means all.", min=0)
    test_rows: int = rows(0, "Test rows that are used; 0 means all.", min=0)
    licence: str = setting("", "Licence of the text; without one, none of it is published.")

    @property
    def paths(self) -> dict[str, str]:
        """Split -> its path, without those that have none."""
        paths = {"train": self.path, "validation": self.validation_path, "test": self.test_path}
        return {split: path for split, path in paths.items() if path}

    def check(self, data_dir: str) -> None:
        if not self.path:
            kinds = f"{', '.join(self.suffixes)}, a folder from save_to_disk, or owner/name of the hub"
            raise UserError(f"dataset={self.name}: no file; give one by dataset.path=my.jsonl ({kinds}).")
        for split, path in self.paths.items():
            name = "dataset.path" if split == "train" else f"dataset.{split}_path"
            _check_path(name, path, data_dir, self.suffixes)
        super().check(data_dir)

    def conditions(self) -> Iterator[Rule]:
        if self.splits.validation + self.splits.test >= 1:
            yield ".splits.validation .splits.test", "nothing is left for training; make them smaller."

    @property
    def publishable(self) -> bool:
        """Text whose licence is unknown is not published."""
        return bool(self.licence)

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        """The rows in the order of their files."""
        tables, fields = self._tables(data_dir), Counter[str]()
        pools = {split: self._read(table, fields) for split, table in tables.items()}
        warnings = [*self.finish(pools), *self._overlaps(pools)]
        if unread := {name: count for name, count in fields.items() if name != self.weight}:
            listed = ", ".join(f"{name} ({count:,})" for name, count in unread.items())
            line = f"{self.path}: fields of messages that are not read: {listed}"
            warnings.append(f"{line}; what is to be learned has to stand in content.")
        pools |= self._shared_out(pools["train"], [split for split in self.all_splits if split not in pools])
        counts = {split: len(pools[split]) for split in self.all_splits}
        if counts["train"] < 10:
            sizes = "training rows: {train}, validation: {validation}, test: {test}".format_map(counts)
            warnings.append(f"{self.path}: {sizes}; a model learns nothing from so few.")
        for split, most in (("train", self.train_rows), ("test", self.test_rows)):
            if 0 < most < counts[split]:
                chosen = sorted(enumerate(pools[split]), key=lambda pair: pair[1].hash)[:most]
                pools[split] = [entry for _, entry in sorted(chosen, key=lambda pair: pair[0])]
                warnings.append(f"{split}: {most:,} of {counts[split]:,} rows are used (dataset.{split}_rows={most}).")
        if self.weight:
            weights = {split: {entry.row.more["weight"] for entry in pool} for split, pool in pools.items()}
            for split in ("train", "validation"):
                if not any(np.atleast_2d(json.loads(weight))[:, -1].any() for weight in weights[split]):
                    raise UserError(f"{self.path}: dataset.weight={self.weight}: all weights of {split} are 0.")
            if not fields[self.weight]:
                raise UserError(f"{self.path}: dataset.weight={self.weight}: no row has it, and no message.")
        splits = {split: numbered(split, [entry.row for entry in pool]) for split, pool in pools.items()}
        files = {split: table.label for split, table in tables.items()}
        remarks = {"licence": self.licence or "unknown", **({"warnings": warnings} if warnings else {})}
        return Material(splits, {"kind": "own files", "files": files}, remarks=remarks)

    @abstractmethod
    def columns(self, names: Sequence[str]) -> list[str]:
        """The columns that a row is made from, where these are all."""

    @abstractmethod
    def row(self, cells: dict[str, Any]) -> Row | None:
        """The row of these values, or None for one that is left out. ValueError says what is wrong with it."""

    def finish(self, pools: dict[str, list[Told]]) -> list[str]:
        """Change what depends on all rows; returns what is to be said of them."""
        return []

    def open(self, path: Path) -> dict[str, Table]:
        """As ``open_tables``."""
        return open_tables(path, self.columns, header=self.header, cells=self.cells)

    def _tables(self, data_dir: Path) -> dict[str, Table]:
        """Split -> the table that it is read from; train at least."""
        tables = dict[str, Table]()
        for split, path in self.paths.items():
            logger.info(f"reading {path}")
            if is_on_hub(path, data_dir):
                opened = hub_tables(path, self.config_name, self.columns)
            else:
                opened = self.open(find_file(path, data_dir) or Path(path))
            chosen = opened.get("", opened.get(split))
            if chosen is None:
                raise UserError(f"{path}: no split {split!r}, only {', '.join(opened)}; give a file that has its rows.")
            tables[split] = chosen
            if split == "train":
                tables |= {name: opened[name] for name in self.all_splits if name in opened}
                if unread := [name for name in opened if name not in ("", *self.all_splits)]:
                    logger.warning(
                        f"{path}: its splits {', '.join(unread)} are not read; train, validation and test are."
                    )
        return tables

    def _read(self, table: Table, fields: Counter[str]) -> list[Told]:
        """The rows of a table; counts the fields of messages besides role and content, and weights."""
        pool, salt = list[Told](), self.seed.to_bytes(8)
        for place, record in table.rows:
            if not any(str(value).strip() for value in record.values() if value is not None):
                continue  # what a spreadsheet makes of an empty line
            try:
                cells, weight = self._weight(record) if self.weight else (record, {})
                if row := self.row(cells):
                    f"{row.question}{row.answer}".encode()  # ValueError for half of a surrogate pair
                    text = row.more.get("before", "") + (row.question or row.answer)
                    digest = blake2b(text.encode(), digest_size=8, key=salt).digest()
                    pool.append(Told(place, row._replace(more={**row.more, **weight}), int.from_bytes(digest)))
            except ValueError as error:
                raise UserError(f"{place}: {error}.") from error
            fields[self.weight] += self.weight in record
            messages = record.get("messages")
            for message in messages if isinstance(messages, list) else ():
                fields.update(name for name, value in message.items() if value and name not in ("role", "content"))
                fields[self.weight] += isinstance(message["content"], list)
        if not pool:
            raise UserError(f"{table.label}:1: no rows.")
        if any("before" in entry.row.more for entry in pool):
            pool = [entry._replace(row=entry.row._replace(more={"before": "", **entry.row.more})) for entry in pool]
        return pool

    def _weight(self, cells: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The cells as they are without weights, and the ``weight`` of the answer as of `ntl.data.dataset.Example`."""
        name = self.weight
        weight = checked(cells[name], name) if name in cells else 1.0
        messages = cells.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
            return cells, {"weight": json.dumps(weight)}
        *before, last = messages
        if any(checked(message.get(name) or 0, name) for message in before):
            raise ValueError(f"{name!r} of an earlier message, of which nothing is learned; leave it out, or write 0")
        weight *= _weight_of(last, name)
        parts = last.get("content")
        if not isinstance(parts, list):
            return cells, {"weight": json.dumps(weight)}
        if self.answers == "number":
            raise ValueError("an answer that is one number has no parts; set dataset.answers=reasoning, or text")
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
            raise ValueError("the content of the last message is a list, but not of {text, " + name + "}")
        content = "".join(part["text"] for part in parts)
        of_parts = [[len(part["text"]), weight * _weight_of(part, name)] for part in parts]
        return {**cells, "messages": [*before, {**last, "content": content}]}, {"weight": json.dumps(of_parts)}

    def _overlaps(self, pools: dict[str, list[Told]]) -> Iterator[str]:
        for split, other in combinations([split for split in ("test", "validation", "train") if split in pools], 2):
            asked = {entry.hash for entry in pools[other]}
            if other == "validation" and self.test_path == self.validation_path != "":  # as is meant
                yield "test is the file of validation: its scores are those of validation."
            elif count := sum(entry.hash in asked for entry in pools[split]):
                yield (
                    f"{count:,} of {len(pools[split]):,} {split} {self.rows_are} are also in {other}: scores on them "
                    f"are no scores on new {self.rows_are}."
                )

    def _shared_out(self, pool: list[Told], missing: list[str]) -> dict[str, list[Told]]:
        """The rows of ``train``, and of the splits that are cut from it."""
        different = sorted({entry.hash for entry in pool})
        counts = [max(1, round(getattr(self.splits, split) * len(different))) for split in missing]
        if sum(counts) >= len(different):
            raise UserError(
                f"{self.path}: {len(different)} different {self.rows_are}, of which {', '.join(missing)} take "
                f"{sum(counts)}, so that none is left for training; give more, make dataset.splits smaller, or give "
                "files of these splits by dataset.validation_path and dataset.test_path."
            )
        ends, splits = [different[count] for count in accumulate(counts)], [*missing, "train"]
        pools = {split: list[Told]() for split in splits}
        for entry in pool:
            pools[splits[bisect_right(ends, entry.hash)]].append(entry)
        return pools


def _weight_of(part: dict[str, Any], name: str) -> float:
    return 1.0 if part.get(name) is None else checked(part[name], name)


def is_on_hub(path: str, data_dir: str | Path) -> bool:
    """Whether a path that is nowhere here may be ``owner/name``."""
    is_file = find_file(path, data_dir) or suffix_of(Path(path)) in (*PLAIN_TEXT, *SUFFIXES)
    return not is_file and bool(HUB_ID.fullmatch(path))


def _check_path(name: str, path: str, data_dir: str, suffixes: tuple[str, ...]) -> None:
    check_plain(path, f"{name}={path}")
    if is_on_hub(path, data_dir):
        return
    if (source := find_file(path, data_dir)) is None:
        near = [sibling.name for sibling in Path(path).parent.glob("*")]
        raise UserError(f"{name}={shorten(path)}: no such file or folder.{nearest(Path(path).name, near)}")
    if source.is_dir():
        if not any((source / file).is_file() for file in SAVED):
            raise UserError(f"{name}={path}: a folder that save_to_disk did not write; give such a folder, or a file.")
    elif suffix_of(source) not in suffixes or (source.suffix.lower() == ".gz" and suffix_of(source) == ".parquet"):
        plain = "plain text is read by dataset=text; otherwise " if suffix_of(source) in PLAIN_TEXT else ""
        remedy = f"export a spreadsheet as CSV, or rename it after what it holds: {', '.join(suffixes)}"
        raise UserError(f"{name}={path}: unknown format; {plain}{remedy}, all but Parquet also with .gz.")
