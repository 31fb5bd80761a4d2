"""Questions and answers, or plain text, of one's own: a file, a folder from ``save_to_disk``, or a hub's data set."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ntl.config.settings import Rule, setting
from ntl.config.validation import LISTS, NUMERIC
from ntl.data.dataset import PLAIN_NUMBERS, Row
from ntl.data.raw import read_text
from ntl.data.sets.own import PLAIN_TEXT, Own, Told
from ntl.data.tables import SUFFIXES, Table, suffix_of
from ntl.numbers import last_number_paper, parse_number
from ntl.numbers.answers import ANSWER_MARK, find_answer, find_values, read_list
from ntl.numbers.text import format_number
from ntl.numbers.written import NAMES, last_boxed, read_value, rewrite
from ntl.system.errors import UserError

# In a template: ``{COLUMN}``, or a doubled brace, which is a single one. Any other brace stands for itself.
COLUMN = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")
BOX = r"\boxed"  # in which, or after ANSWER_MARK, the default rule looks for the answer of a text
# The longest document in characters; a tokenizer needs some hundred times as much memory.
LONGEST = 1 << 24


@dataclass
class File(Own):
    """Questions and answers of one's own.

    A question is a column or a template of columns, an answer a column; ``answers`` says what it must be.
    """

    _target_: str = "ntl.data.sets.file.File"
    name: str = "file"
    question: str = setting("question", "Column of the question.")
    answer: str = setting("answer", "Column of the answer.")
    template: str = setting("", "Question made from several columns, as in `Convert {value} {unit} to metres`.")
    number_format: str = setting(
        PLAIN_NUMBERS,
        "How the numbers of dataset.answers=number are written: plain, kept as they stand; point or comma, the decimal "
        "mark of numbers as people write them, which are rewritten as digits; auto, as the column tells.",
        choices=(PLAIN_NUMBERS, "auto", "point", "comma"),
    )
    mark: str = setting("####", "What stands before the final number of `dataset.answers=reasoning`.")

    def conditions(self) -> Iterator[Rule]:
        yield from super().conditions()
        if self.answers not in (known := (*NUMERIC, LISTS, "text")):
            yield ".answers", f"choose one of {', '.join(known)}; text without answers is read by dataset=text."
        if self.number_format != PLAIN_NUMBERS and self.answers != "number":
            line = "an answer that is no number alone is kept as it stands; leave dataset.number_format out."
            yield ".number_format .answers", line
        if not self.asked:
            yield ".template", "it names no column, so that all questions are equal; write {COLUMN} in it."
        if self.template and self.question != "question":
            yield ".template .question", "the template is the question; leave one out."

    @property
    def metrics(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the answers are."""
        return self.answers if self.answers in (LISTS, "text") else "number"

    def scored(self, answer: str) -> str:
        if self.answers != "reasoning":
            return answer
        return (last_boxed(answer) if self.mark == BOX else answer.rpartition(self.mark)[2]).strip()

    @property
    def asked(self) -> list[str]:
        """The columns that the question is made from."""
        return [*filter(None, COLUMN.findall(self.template))] if self.template else [self.question]

    def columns(self, names: Sequence[str]) -> list[str]:
        """Those of the question, then that of the answer; or those that are known by their names; and the weight's."""
        wanted = [*self.asked, self.answer]
        if wanted == ["question", "answer"] and not set(wanted) <= set(names):
            wanted = known_columns(names) or wanted
        # The weights of messages may stand in these alone.
        return [*wanted, self.weight] if self.weight and (self.weight in names or wanted != ["messages"]) else wanted

    def row(self, cells: dict[str, Any]) -> Row | None:
        before = list[str]()
        if self.answer in cells:
            as_text = {self.answer: json_of} if self.answers == LISTS else {}
            texts = {name: as_text.get(name, text_of)(name, value) for name, value in cells.items()}
            filled = COLUMN.sub(lambda part: texts[part[1]] if part[1] else part[0][0], self.template)
            question, answer = filled if self.template else texts[self.question], texts[self.answer]
        else:
            question, answer, *before = said_in(cells)
        if before and self.format == "plain":
            raise ValueError("messages before the last question are for a chat template; set dataset.format=chat")
        for name, text in (("question", question), ("answer", answer)):
            if not text.strip():
                raise ValueError(f"empty {name}; fill it in, or leave the row out")
        if self.answers == "number":
            answer = answer.strip()
            written = cells.get(self.answer, cells.get("output", ""))
            if self.number_format != PLAIN_NUMBERS and not isinstance(written, str):
                raise ValueError(f"the answer {answer} is a number already; leave dataset.number_format out")
        if wrong := self.wrong(answer):
            raise ValueError(wrong)
        return Row(question, answer, more={"before": before[0]} if before else {})

    def wrong(self, answer: str) -> str:
        """What is wrong with an answer; empty for one that can be scored."""
        quoted = f"the answer {answer!r:.60}"
        if self.answers == "number":
            value = parse_number(answer)
            if value is None and self.number_format == PLAIN_NUMBERS:
                kind = LISTS if read_list(answer) else "text" if find_answer(answer) is None else "sentence"
                takes = f"write one, or leave the row out; dataset.answers={kind} takes"
                takes = "dataset.number_format=auto reads" if read_value(answer) else takes
                return f"{quoted} is no number; {takes} it"
            if value is not None and math.isinf(value):
                return f"{quoted} is beyond the largest float, 1.8e308; write its logarithm, or leave the row out"
        if self.answers == "reasoning":
            if answer.count(self.mark) != 1 or parse_number(number := self.scored(answer)) is None:
                return (
                    f"the answer does not end in one {self.mark} and a number; dataset.mark= sets another mark, "
                    rf"such as {BOX}, and dataset.answers=sentence needs none"
                )
            if re.search(r"\.[eE]", number):  # which only the grammar of a number alone has
                return f"the number {number!r:.60} cannot be scored; write 1000 or 1.0e+03 for 1.e+03"
            others = [mark for mark in (ANSWER_MARK, BOX) if mark in answer] if self.mark != ANSWER_MARK else []
            if others and others != [self.mark]:
                return f"the answer has {others[0]} in it, which is read as the mark {self.mark}"
        if self.answers == "sentence":
            values = find_values(answer.strip())
            if not values or values[-1] is None or last_number_paper(answer) is None:
                what = "a last number that cannot be read" if values else "no number"
                return f"{quoted} has {what}; dataset.answers=text takes it"
            if find_answer(answer) != values[-1]:
                return f"{quoted} has {ANSWER_MARK} or {BOX} before its last number"
        if self.answers == LISTS and not read_list(answer):
            line = 'does not hold numbers alone, as 1, 2 or [1, 2] or {"a": 1}; dataset.answers=text takes it'
            return f"{quoted} {line}"
        return ""

    def finish(self, pools: dict[str, list[Told]]) -> list[str]:
        if self.answers not in ("number", LISTS):
            return []
        answers = [(entry.place, entry.row.answer) for pool in pools.values() for entry in pool]
        grouped = sum("," in answer and parse_number(answer) is not None for _, answer in answers)
        if self.answers == LISTS:
            line = f"{self.path}: {grouped:,} answers such as 1,234 are read as several numbers; write 1234 for one."
            return [line] if grouped else []
        if self.number_format == PLAIN_NUMBERS:
            line = f"{self.path}: {grouped:,} answers have thousands separators, which a model learns to write; "
            return [f"{line}dataset.number_format=auto leaves them out."] if grouped else []
        marks = {name: mark for mark, name in NAMES.items()}
        numerals, remark = rewrite(answers, marks.get(self.number_format, ""))
        remaining = iter(numerals)
        for pool in pools.values():
            pool[:] = [entry._replace(row=entry.row._replace(answer=next(remaining))) for entry in pool]
        return [f"{self.path}: {remark}."] if remark else []


def known_columns(names: Sequence[str]) -> list[str]:
    """The columns that need no setting: a conversation, or an instruction; empty where these are not there."""
    if "messages" in names:
        return ["messages"]
    columns = [name for name in ("instruction", "input", "output") if name in names]
    return columns if {"instruction", "output"} <= set(columns) else []


def said_in(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Question and answer of a row of ``known_columns``, and, if messages stand before them, these as JSON.

    ValueError for a conversation that does not end in a question and its answer.
    """
    if "messages" not in row:
        texts = {name: text_of(name, "" if value is None else value) for name, value in row.items()}
        return "\n\n".join(filter(None, (texts["instruction"], texts.get("input")))), texts["output"]
    messages = row["messages"]
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError("'messages' is no list of {role, content}")
    turns = [{name: text_of(name, message.get(name)) for name in ("role", "content")} for message in messages]
    if [turn["role"] for turn in turns[-2:]] != ["user", "assistant"]:
        raise ValueError("'messages' does not end in a message of the user and the answer of the assistant")
    before = [json.dumps(turns[:-2], ensure_ascii=False)] if turns[:-2] else []
    return turns[-2]["content"], turns[-1]["content"], *before


def json_of(column: str, value: Any) -> str:
    """As ``text_of``, and a list, or an object of name and value, as JSON."""
    if isinstance(value, dict):
        parts = (f"{json.dumps(name, ensure_ascii=False)}: {text_of(column, item)}" for name, item in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list | np.ndarray):
        return f"[{', '.join(text_of(column, item) for item in value)}]"
    return text_of(column, value)


@dataclass
class Text(Own):
    """Plain text of one's own: text files divided into ``documents``, or a ``column`` with a document in each row.

    A row's answer is a document, its question is empty (``ntl.data.encode.Packer``). Scored by the likelihood of its
    documents. Rows without text are left out.
    """

    metrics = "likelihood"
    rows_are = "documents"
    suffixes: ClassVar[tuple[str, ...]] = (*PLAIN_TEXT, *SUFFIXES)

    _target_: str = "ntl.data.sets.file.Text"
    name: str = "text"
    answers: str = "none"
    column: str = setting("text", "Column with a document in each row, of all but text files.")
    documents: str = setting(
        "paragraph",
        "What a document of a text file is: what stands between blank lines, a line, or the file.",
        choices=("paragraph", "line", "file"),
    )

    def conditions(self) -> Iterator[Rule]:
        yield from super().conditions()
        plain = [suffix_of(Path(path)) in PLAIN_TEXT for path in self.paths.values()]
        if self.answers != "none":
            yield ".answers", "plain text has no answers; leave it out."
        if all(plain) and self.column != "text":
            yield ".column", "a text file has no columns; leave it out."
        if not any(plain) and self.documents != "paragraph":
            line = f"only text files ({', '.join(PLAIN_TEXT)}) are divided, other rows are documents; leave it out."
            yield ".documents", line

    def columns(self, names: Sequence[str]) -> list[str]:
        return [self.column, *([self.weight] if self.weight else [])]

    def open(self, path: Path) -> dict[str, Table]:
        if suffix_of(path) not in PLAIN_TEXT:
            return super().open(path)
        return {"": Table(str(path), ((at, {self.column: text}) for at, text in documents(path, self.documents)))}

    def row(self, cells: dict[str, Any]) -> Row | None:
        text = text_of(self.column, cells[self.column])
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


def text_of(column: str, value: Any) -> str:
    """The value of a column as text: 1e-7 as 0.0000001, 1.0 as 1. ValueError for no text and no finite number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating | Decimal):
        shown = "null" if value is None else repr(value)[:60]
        raise ValueError(f"{column!r} is {shown}, neither text nor a number; write it as one, or leave the row out")
    if not (number := Decimal(str(value))).is_finite():
        raise ValueError(f"{column!r} is {value}, no finite number; fill it in, or leave the row out")
    return format_number(number)
