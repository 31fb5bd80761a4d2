"""Questions and answers, or plain text, of one's own: a file, a folder from ``save_to_disk``, or a hub's data set.

A split without a file of its own gets the training questions whose seeded hash is smallest: equal questions have equal
hashes, so that they land in one split, and shares are of the different questions, not of the rows.
"""

import json
import re
from abc import abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import accumulate, combinations, dropwhile, groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

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
from ntl.config.legality import LISTS
from ntl.data.dataset import Log, Material, Row, TextDataset, numbered
from ntl.data.raw import read_text
from ntl.data.tables import Table, hub_tables, open_tables
from ntl.data.weights import checked
from ntl.numbers import last_number_paper, parse_number
from ntl.numbers.answers import ANSWER_MARK, find_answer, find_values, read_list
from ntl.numbers.text import format_number
from ntl.numbers.written import NAMES, last_boxed, read_value, rewrite
from ntl.system.errors import UserError

SPLITS = ("train", "validation", "test")
BOX = r"\boxed"  # in which, or after ANSWER_MARK, the default rule looks for the answer of a text
FEW = 10  # rows to train on
# The longest document in characters; a tokenizer needs some hundred times as much memory.
LONGEST = 1 << 24


class Told(NamedTuple):
    """A row, its place in the file, and a seeded hash of what is asked, or of a text that answers nothing."""

    place: str
    row: Row
    hash: int


class Own(TextDataset):
    """Rows of a user's own. A subclass says which ``columns`` it reads, and makes a row from their values."""

    splits = SPLITS
    rows_are: ClassVar[str] = "questions"
    has_weights = False
    unread: Counter[str]  # messages with a field that is not read, by its name
    config: OwnDataConfig

    @property
    def publishable(self) -> bool:
        """Text whose licence is unknown is not published."""
        return bool(self.config.licence)

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """The rows in the order of their files."""
        config, tables, self.unread = self.config, self._tables(data_dir, log), Counter()
        pools = {split: self._read(table) for split, table in tables.items()}
        warnings = [*self.finish(pools), *_overlaps(pools, self.rows_are)]
        if unread := ", ".join(f"{name} ({count:,})" for name, count in self.unread.items()):
            line = f"{config.path}: fields of messages that are not read: {unread}"
            warnings.append(f"{line}; what is to be learned has to stand in content.")
        pools |= self._shared_out(pools["train"], [split for split in SPLITS if split not in pools])
        train, validation, test = (len(pools[split]) for split in SPLITS)
        if train < FEW:
            counts = f"training rows: {train}, validation: {validation}, test: {test}"
            warnings.append(f"{config.path}: {counts}; a model learns nothing from so few.")
        for split, most in (("train", config.train_rows), ("test", config.test_rows)):
            if 0 < most < (count := len(pool := pools[split])):
                taken = sorted(range(count), key=lambda index: pool[index].hash)[:most]
                pools[split] = [pool[index] for index in sorted(taken)]
                warnings.append(f"{split}: {most:,} of {count:,} rows are used (dataset.{split}_rows={most}).")
        for split in ("train", "validation") if config.weight else ():
            if not any(np.atleast_2d(json.loads(each.row.more["weight"]))[:, -1].any() for each in pools[split]):
                raise UserError(f"{config.path}: dataset.weight={config.weight}: all weights of {split} are 0.")
        if config.weight and not self.has_weights:
            raise UserError(f"{config.path}: dataset.weight={config.weight}: no row has it, and no message.")
        splits = {split: numbered(split, [each.row for each in pool]) for split, pool in pools.items()}
        files = {split: table.label for split, table in tables.items()}
        remarks = {"licence": config.licence or "unknown", **({"warnings": warnings} if warnings else {})}
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

    def _read(self, table: Table) -> list[Told]:
        told, salt = list[Told](), self.config.seed.to_bytes(8)
        for place, cells in table.read(self.columns):
            if not any(str(value).strip() for value in cells.values() if value is not None):
                continue  # what a spreadsheet makes of an empty line
            try:
                cells, weight = self._weight(cells) if self.config.weight else (cells, {})
                if row := self.row(cells):
                    "".join([row.question, row.answer]).encode()
                    text = row.more.get("before", "") + (row.question or row.answer)
                    digest = blake2b(text.encode(), digest_size=8, key=salt).digest()
                    told.append(Told(place, row._replace(more={**row.more, **weight}), int.from_bytes(digest)))
            except ValueError as error:
                raise UserError(f"{place}: {error}.") from error
        if not told:
            raise UserError(f"{table.label}:1: no rows.")
        if any("before" in each.row.more for each in told):
            told = [each._replace(row=each.row._replace(more={"before": "", **each.row.more})) for each in told]
        return told

    def _weight(self, cells: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The cells as they are without weights, and the ``weight`` of the answer as of `ntl.data.dataset.Example`."""
        name, weight = self.config.weight, 1.0
        self.has_weights = self.has_weights or repr(name) in repr(cells)
        if name in cells:
            weight = checked(cells[name], name)
        messages = cells.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
            return cells, {"weight": json.dumps(weight)}
        *before, last = messages
        if any(checked(each.get(name) or 0, name) for each in before):
            raise ValueError(f"{name!r} of an earlier message, of which nothing is learned; leave it out, or write 0")
        weight *= 1.0 if last.get(name) is None else checked(last[name], name)
        parts = last.get("content")
        if not isinstance(parts, list):
            return cells, {"weight": json.dumps(weight)}
        if self.config.answers == "number":
            raise ValueError("an answer that is one number has no parts; set dataset.answers=reasoning, or text")
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
            raise ValueError("the content of the last message is a list, but not of {text, " + name + "}")
        weights = [weight * (1.0 if part.get(name) is None else checked(part[name], name)) for part in parts]
        content = "".join(part["text"] for part in parts)
        of_parts = [[len(part["text"]), each] for part, each in zip(parts, weights, strict=True)]
        return {**cells, "messages": [*before, {**last, "content": content}]}, {"weight": json.dumps(of_parts)}

    def _shared_out(self, pool: list[Told], missing: list[str]) -> dict[str, list[Told]]:
        """The rows of ``train``, and of the splits that are cut from it."""
        different = sorted({each.hash for each in pool})
        counts = [max(1, round(getattr(self.config.splits, split) * len(different))) for split in missing]
        if sum(counts) >= len(different):
            raise UserError(
                f"{self.config.path}: {len(different)} different {self.rows_are}, of which {', '.join(missing)} take "
                f"{sum(counts)}, so that none is left for training; give more, make dataset.splits smaller, or give "
                "files of these splits by dataset.validation_path and dataset.test_path."
            )
        ends, splits = [different[count] for count in accumulate(counts)], [*missing, "train"]
        found = {split: list[Told]() for split in splits}
        for each in pool:
            found[splits[bisect_right(ends, each.hash)]].append(each)
        return found


class File(Own):
    """A question is a column or a template of columns, an answer a column; ``config.answers`` says what it must be."""

    config: FileConfig

    @property
    def metrics(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the answers are."""
        return self.config.answers if self.config.answers in (LISTS, "text") else "number"

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

    def row(self, cells: dict[str, Any]) -> Row | None:
        config, before = self.config, list[str]()
        if config.answer in cells:
            as_text = {config.answer: json_of} if config.answers == LISTS else {}
            texts = {name: as_text.get(name, text_of)(name, value) for name, value in cells.items()}
            filled = COLUMN.sub(lambda part: texts[part[1]] if part[1] else part[0][0], config.template)
            question, answer = filled or texts[config.question], texts[config.answer]
        else:
            question, answer, *before = said_in(cells)
            read = ("role", "content", config.weight)
            for message in cells.get("messages", ()):
                self.unread.update(name for name, value in message.items() if value and name not in read)
        if before and config.format == "plain":
            raise ValueError("messages before the last question are for a chat template; set dataset.format=chat")
        for name, text in (("question", question), ("answer", answer)):
            if not text.strip():
                raise ValueError(f"empty {name}")
        if config.answers == "number":
            answer = answer.strip()
            written = cells.get(config.answer, cells.get("output", ""))
            if config.number_format == PLAIN_NUMBERS and parse_number(answer) is None:
                kind = LISTS if read_list(answer) else "text" if find_answer(answer) is None else "sentence"
                other = f"dataset.answers={kind} takes it"
                remedy = "dataset.number_format=auto reads it" if read_value(answer) else other
                raise ValueError(f"the answer {answer!r:.60} is no number; {remedy}")
            if config.number_format != PLAIN_NUMBERS and not isinstance(written, str):
                raise ValueError(
                    f"the answer {answer} is no text, but a number already; leave dataset.number_format out"
                )
        if config.answers == "reasoning":
            if answer.count(config.mark) != 1 or parse_number(number := self.scored(answer)) is None:
                raise ValueError(
                    f"the answer does not end in one {config.mark} and a number; dataset.mark= sets another mark, "
                    rf"such as {BOX}, and dataset.answers=sentence needs none"
                )
            if re.search(r"\.[eE]", number):  # which only the grammar of a number alone has
                raise ValueError(f"the number {number!r:.60} cannot be scored; write 1000 or 1.0e+03 for 1.e+03")
            others = [mark for mark in (ANSWER_MARK, BOX) if mark in answer] if config.mark != ANSWER_MARK else []
            if others and others != [config.mark]:
                raise ValueError(f"the answer has {others[0]} in it, which is read as the mark {config.mark}")
        if config.answers == "sentence":
            found = find_values(answer.strip())
            if not found or found[-1] is None or last_number_paper(answer) is None:
                what = "a last number that cannot be read" if found else "no number"
                raise ValueError(f"the answer {answer!r:.60} has {what}; dataset.answers=text takes it")
            if find_answer(answer) != found[-1]:
                raise ValueError(f"the answer {answer!r:.60} has {ANSWER_MARK} or {BOX} before its last number")
        if config.answers == LISTS and not read_list(answer):
            line = 'does not hold numbers alone, as 1, 2 or [1, 2] or {"a": 1}; dataset.answers=text takes it'
            raise ValueError(f"the answer {answer!r:.60} {line}")
        return Row(question, answer, more={"before": before[0]} if before else {})

    def finish(self, pools: dict[str, list[Told]]) -> list[str]:
        config = self.config
        if config.answers not in ("number", LISTS):
            return []
        answers = [(each.place, each.row.answer) for pool in pools.values() for each in pool]
        grouped = sum("," in answer and parse_number(answer) is not None for _, answer in answers)
        if config.answers == LISTS:
            line = f"{config.path}: {grouped:,} answers such as 1,234 are read as several numbers; write 1234 for one."
            return [line] if grouped else []
        if config.number_format == PLAIN_NUMBERS:
            line = f"{config.path}: {grouped:,} answers have thousands separators, which a model learns to write; "
            return [f"{line}dataset.number_format=auto leaves them out."] if grouped else []
        marks = {name: mark for mark, name in NAMES.items()}
        numerals, said = rewrite(answers, marks.get(config.number_format, ""))
        remaining = iter(numerals)
        for pool in pools.values():
            pool[:] = [each._replace(row=each.row._replace(answer=next(remaining))) for each in pool]
        return [f"{config.path}: {said}."] if said else []


def known_columns(names: Sequence[str]) -> list[str]:
    """The columns that need no setting: a conversation, or an instruction; empty where these are not there."""
    if "messages" in names:
        return ["messages"]
    found = [name for name in ("instruction", "input", "output") if name in names]
    return found if {"instruction", "output"} <= set(found) else []


def said_in(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Question and answer of a row of ``known_columns``, and, if messages stand before them, these as JSON.

    ValueError for a conversation that does not end in a question and its answer.
    """
    if "messages" not in row:
        texts = {name: text_of(name, "" if value is None else value) for name, value in row.items()}
        return "\n\n".join(filter(None, (texts["instruction"], texts.get("input")))), texts["output"]
    messages = row["messages"]
    if not isinstance(messages, list) or not all(isinstance(each, Mapping) for each in messages):
        raise ValueError("'messages' is no list of {role, content}")
    turns = [{name: text_of(name, each.get(name)) for name in ("role", "content")} for each in messages]
    if [turn["role"] for turn in turns[-2:]] != ["user", "assistant"]:
        raise ValueError("'messages' does not end in a message of the user and the answer of the assistant")
    before = [json.dumps(turns[:-2], ensure_ascii=False)] if turns[:-2] else []
    return turns[-2]["content"], turns[-1]["content"], *before


def json_of(column: str, value: Any) -> str:
    """As ``text_of``, and a list, or an object of name and value, as JSON."""
    if isinstance(value, dict):
        parts = (f"{json.dumps(name, ensure_ascii=False)}: {text_of(column, each)}" for name, each in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list | np.ndarray):
        return f"[{', '.join(text_of(column, each) for each in value)}]"
    return text_of(column, value)


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

    def row(self, cells: dict[str, Any]) -> Row | None:
        text = text_of(self.config.column, cells[self.config.column])
        return Row("", text) if text.strip() else None


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


def _overlaps(pools: dict[str, list[Told]], rows_are: str) -> Iterator[str]:
    for split, other in combinations([split for split in ("test", "validation", "train") if split in pools], 2):
        asked = {each.hash for each in pools[other]}
        if count := sum(each.hash in asked for each in pools[split]):
            yield (
                f"{count:,} of {len(pools[split]):,} {split} {rows_are} are also in {other}: scores on them are no "
                f"scores on new {rows_are}."
            )


def text_of(column: str, value: Any) -> str:
    """The value of a column as text. A number is written out: 1e-7 as 0.0000001, 1.0 as 1.

    ValueError for a value that is neither text nor a finite number.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | Decimal):
        raise ValueError(f"{column!r} is {'null' if value is None else repr(value)[:60]}, neither text nor a number")
    if not (number := Decimal(str(value))).is_finite():
        raise ValueError(f"{column!r} is {value}, no finite number")
    return format_number(number)
