"""Questions and answers, or plain text, of one's own: a file, a folder from ``save_to_disk``, or a hub's data set.

A split without a file of its own gets the training questions whose seeded hash is smallest: equal questions have equal
hashes, so that they land in one split, and the shares are exact, of the different questions.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import combinations, dropwhile, groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ntl.config.data import (
    COLUMN,
    PLAIN_NUMBERS,
    PLAIN_TEXT,
    FileConfig,
    OwnDataConfig,
    TextConfig,
    find_file,
    is_on_hub,
    suffix_of,
)
from ntl.data import raw
from ntl.data.chat import known_columns, said_in
from ntl.data.dataset import Example, Log, Material, TextDataset, numbered
from ntl.data.raw import read_text
from ntl.data.tables import Table, hub_tables, open_tables
from ntl.data.weights import checked
from ntl.numbers import parse_number
from ntl.numbers.text import format_number
from ntl.numbers.written import NAMES, last_boxed, read_value, rewrite
from ntl.system.errors import UserError

# Question and answer, and, where any row has earlier messages, these as JSON.
Turns = tuple[str, ...]
SPLITS = ("train", "validation", "test")
MARK, BOX = "####", r"\boxed"  # after which, or in which, `ntl.evaluation` looks for the answer of a text
FEW = 10  # rows to train on
# The longest document in characters; a tokenizer needs some hundred times as much memory.
LONGEST = 1 << 24


class Pool:
    """The rows of a table, the place of each, and a seeded hash of what is asked, or of a text that answers nothing.

    ``weights`` are those of `Example`, empty where there are none.
    """

    def __init__(self, rows: list[tuple[str, Turns]], seed: int, weights: list[str]) -> None:
        self.weights = weights
        self.places, self.rows = [place for place, _ in rows], [row for _, row in rows]
        texts = ("".join(before) + (question or answer) for question, answer, *before in self.rows)
        digests = (blake2b(text.encode(), digest_size=8, key=seed.to_bytes(8)).digest() for text in texts)
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
        config, tables = self.config, self._tables(data_dir, log)
        pools = {split: self._read(table) for split, table in tables.items()}
        warnings = [*self.finish(pools), *_overlaps(pools, self.rows_are)]
        chosen = {split: (pool, np.arange(len(pool.rows))) for split, pool in pools.items()}
        chosen |= self._shared_out(pools["train"], [split for split in SPLITS if split not in pools])
        rows = {split: len(indices) for split, (_, indices) in chosen.items()}
        if rows["train"] < FEW:
            warnings.append(
                f"{config.path}: training rows: {rows['train']}, validation: {rows['validation']}, test: "
                f"{rows['test']}; a model learns nothing from so few."
            )
        for split, most in (("train", config.train_rows), ("test", config.test_rows)):
            pool, indices = chosen[split]
            if 0 < most < len(indices):
                order = np.argsort(pool.hashes[indices], kind="stable")
                chosen[split] = pool, np.sort(indices[order[:most]])
                warnings.append(f"{split}: {most:,} of {len(indices):,} rows are used (dataset.{split}_rows={most}).")
        for split in ("train", "validation") if config.weight else ():
            pool, indices = chosen[split]
            if not any(np.atleast_2d(json.loads(pool.weights[index]))[:, -1].any() for index in indices):
                raise UserError(f"{config.path}: dataset.weight={config.weight}: all weights of {split} are 0.")
        splits = {split: _examples(split, *each) for split, each in chosen.items()}
        files = {split: table.label for split, table in tables.items()}
        remarks = {"licence": config.licence or "unknown", **({"warnings": warnings} if warnings else {})}
        return Material(splits, {"kind": "own files", "files": files}, remarks=remarks)

    @abstractmethod
    def columns(self, names: Sequence[str]) -> list[str]:
        """The columns that a row is made from, where these are all."""

    @abstractmethod
    def row(self, cells: dict[str, Any]) -> Turns | None:
        """Question and answer of a row, or None for one that is left out. ValueError says what is wrong with it."""

    def finish(self, pools: dict[str, Pool]) -> list[str]:
        """Change what depends on all rows; returns what is to be said of them."""
        return []

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
        rows, weights = list[tuple[str, Turns]](), list[str]()
        for place, cells in table.read(self.columns):
            try:
                cells, weight = self._weight(cells) if self.config.weight else (cells, "")
                row = self.row(cells)
                "".join(row or ()).encode()
            except UnicodeEncodeError as error:
                raise UserError(f"{place}: half of a surrogate pair, which UTF-8 cannot hold.") from error
            except ValueError as error:
                raise UserError(f"{place}: {error}.") from error
            if row:
                rows.append((place, row))
                weights += [weight] if weight else []
        if not rows:
            raise UserError(f"{table.label}:1: no rows.")
        if any(len(row) > 2 for _, row in rows):
            rows = [(place, (*row, "")[:3]) for place, row in rows]
        return Pool(rows, self.config.seed, weights)

    def _weight(self, cells: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The cells as they are without weights, and the weight of the answer as of `ntl.data.dataset.Example`."""
        name, weight = self.config.weight, 1.0
        if name in cells:
            weight = checked(cells[name], name)
        messages = cells.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
            return cells, json.dumps(weight)
        *before, last = messages
        if any(checked(each.get(name) or 0, name) for each in before):
            raise ValueError(f"{name!r} of an earlier message, of which nothing is learned; leave it out, or write 0")
        weight *= 1.0 if last.get(name) is None else checked(last[name], name)
        parts = last.get("content")
        if not isinstance(parts, list):
            return cells, json.dumps(weight)
        if self.config.answers == "number":
            raise ValueError("an answer that is one number has no parts; set dataset.answers=reasoning, or text")
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
            raise ValueError("the content of the last message is a list, but not of {text, " + name + "}")
        weights = [weight * (1.0 if part.get(name) is None else checked(part[name], name)) for part in parts]
        content = "".join(part["text"] for part in parts)
        of_parts = [[len(part["text"]), each] for part, each in zip(parts, weights, strict=True)]
        return {**cells, "messages": [*before, {**last, "content": content}]}, json.dumps(of_parts)

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
    def metrics(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the answers are."""
        return "text" if self.config.answers == "text" else "number"

    @property
    def values(self) -> dict[str, Any]:
        """Without the setting that leaves answers as they are, which older folders do not have in their name."""
        return {key: value for key, value in super().values.items() if (key, value) != ("number_format", PLAIN_NUMBERS)}

    def scored(self, answer: str) -> str:
        if self.config.answers != "reasoning":
            return answer
        return (last_boxed(answer) if self.config.mark == BOX else answer.rpartition(self.config.mark)[2]).strip()

    def columns(self, names: Sequence[str]) -> list[str]:
        """Those of the question, then that of the answer; or those that are known by their names; and the weight's."""
        wanted, weight = [*self.config.columns, self.config.answer], self.config.weight
        if wanted == ["question", "answer"] and not set(wanted) <= set(names):
            wanted = known_columns(names) or wanted
        # The weights of messages may stand in these alone.
        return [*wanted, weight] if weight and (weight in names or wanted != ["messages"]) else wanted

    def row(self, cells: dict[str, Any]) -> Turns | None:
        config, before = self.config, list[str]()
        if config.answer in cells:
            texts = {name: text_of(name, value) for name, value in cells.items()}
            if not any(map(str.strip, texts.values())):  # what a spreadsheet makes of an empty line
                return None
            filled = COLUMN.sub(lambda part: texts[part[1]] if part[1] else part[0][0], config.template)
            question, answer = filled or texts[config.question], texts[config.answer]
        else:
            question, answer, *before = said_in(cells, text_of)
        if before and config.format == "plain":
            raise ValueError("messages before the last question are for a chat template; set dataset.format=chat")
        for name, text in (("question", question), ("answer", answer)):
            if not text.strip():
                raise ValueError(f"empty {name}")
        if config.answers == "number":
            answer = answer.strip()
            written = cells.get(config.answer, cells.get("output", ""))
            if config.number_format == PLAIN_NUMBERS and parse_number(answer) is None:
                other = "dataset.answers=reasoning or text takes other answers"
                remedy = "dataset.number_format=auto reads it" if read_value(answer) else other
                raise ValueError(f"the answer {shown(answer)} is no number; {remedy}")
            if config.number_format != PLAIN_NUMBERS and not isinstance(written, str):
                raise ValueError(
                    f"the answer {answer} is no text, but a number already; leave dataset.number_format out"
                )
        if config.answers == "reasoning":
            if answer.count(config.mark) != 1 or parse_number(self.scored(answer)) is None:
                raise ValueError(
                    f"the answer does not end in one {config.mark} and a number; dataset.mark= sets another mark, "
                    rf"such as {BOX}"
                )
            if config.mark != MARK and MARK in answer:
                raise ValueError(f"the answer has {MARK} in it, which is read as the mark {config.mark}")
        return question, answer, *before

    def finish(self, pools: dict[str, Pool]) -> list[str]:
        config = self.config
        if config.answers != "number":
            return []
        answers = [
            (place, row[1]) for pool in pools.values() for place, row in zip(pool.places, pool.rows, strict=True)
        ]
        if config.number_format == PLAIN_NUMBERS:
            grouped = sum("," in answer for _, answer in answers)
            line = f"{config.path}: {grouped:,} answers have thousands separators, which a model learns to write; "
            return [f"{line}dataset.number_format=auto leaves them out."] if grouped else []
        marks = {name: mark for mark, name in NAMES.items()}
        numerals, said = rewrite(answers, marks.get(config.number_format, ""))
        remaining = iter(numerals)
        for pool in pools.values():
            pool.rows = [(row[0], next(remaining), *row[2:]) for row in pool.rows]
        return [f"{config.path}: {said}."] if said else []


class Text(Own):
    """Plain text: a row's answer is a document, its question is empty (``ntl.data.encoded.Packed``).

    Scored by the likelihood of its documents. Rows without text are left out.
    """

    metrics = "likelihood"
    rows_are = "documents"
    config: TextConfig

    def columns(self, names: Sequence[str]) -> list[str]:
        return [self.config.column, *([self.config.weight] if self.config.weight else [])]

    def open(self, path: Path) -> dict[str, Table]:
        if suffix_of(path) not in PLAIN_TEXT:
            return super().open(path)
        column, kind = self.config.column, self.config.documents
        return {"": Table(str(path), lambda columns: ((at, {column: text}) for at, text in documents(path, kind)))}

    def row(self, cells: dict[str, Any]) -> Turns | None:
        text = text_of(self.config.column, cells[self.config.column])
        return ("", text) if text.strip() else None


def documents(path: Path, kind: str) -> Iterator[tuple[str, str]]:
    """The documents of a text file, without blank lines around them, each behind the place where it begins."""
    lines = [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]
    lines[-1] = lines[-1].rstrip()
    numbered_lines = dropwhile(_is_blank, enumerate(lines, start=1))
    part_of = {"paragraph": _is_blank, "line": lambda line: line[0], "file": lambda line: 0}
    for _, group in groupby(numbered_lines, part_of[kind]):
        numbers, texts = zip(*group, strict=True)
        place, text = f"{path}:{numbers[0]}", "\n".join(texts)
        if "\0" in text:
            raise UserError(f"{place}: a zero byte, so this is no text file; give text in UTF-8.")
        if len(text) > LONGEST:
            raise UserError(
                f"{place}: a document of more than {LONGEST:,} characters, too long to tokenize at once; divide it by "
                f"blank lines, or by dataset.documents=line, now {kind}."
            )
        if text.strip():
            yield place, text.rstrip() if kind == "file" else text


def _is_blank(line: tuple[int, str]) -> bool:
    return not line[1].strip()


def _examples(split: str, pool: Pool, indices: np.ndarray) -> Iterator[Example]:
    rows = [pool.rows[index] for index in indices]
    for index, example, (_, _, *before) in zip(indices, numbered(split, [row[:2] for row in rows]), rows, strict=True):
        if before:
            example["before"] = before[0]
        if pool.weights:
            example["weight"] = pool.weights[index]
        yield example


def _overlaps(pools: dict[str, Pool], rows_are: str) -> list[str]:
    lines = []
    for split, other in combinations([split for split in ("test", "validation", "train") if split in pools], 2):
        if count := int(np.isin(pools[split].hashes, pools[other].hashes).sum()):
            lines.append(
                f"{count:,} of {len(pools[split].rows):,} {split} {rows_are} are also in {other}: scores on them are "
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
