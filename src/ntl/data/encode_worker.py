"""Blocks of JSON lines to token ids, also in processes of their own (``serve``): imports nothing slow."""

import json
import math
import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ntl.numbers.text import parse_number
from ntl.system.errors import UserError

COUNTERS = ("truncated", "unknown", "longest_question", "longest_answer", "longest_example")
# About 40 MB. Numbers make ever new words.
REMEMBERED_WORDS = 1 << 17
Values = list[float]
# Text -> the text with numbers replaced by number tokens, and the values of these tokens in order.
Reader = Callable[[str], tuple[str, Values]]


@dataclass
class Settings:
    """How text becomes ids. ``tokenizer`` is the content of tokenizer.json, ``unknown`` -1 if there is no such token.

    ``reader`` is the dotted name of a ``Reader``, empty for text that is encoded as it is; ``number_token`` the id of
    the tokens whose values it gives, or -1. With ``keep_target`` the end token of an answer has the answer's value.
    """

    tokenizer: str
    end: int
    unknown: int
    decoder_only: bool
    answer_prefix: str
    max_length: int
    dtype: str
    reader: str = ""
    number_token: int = -1
    keep_target: bool = False

    @property
    def has_values(self) -> bool:
        return self.number_token >= 0 or self.keep_target


@dataclass
class EncodedBlock:
    """The token ids of questions and answers in turn, the length of each, and ``COUNTERS``: two sums, three maxima.

    ``values`` (float64), if the settings ask for them, has one for each token: 1 unless it is a number token.
    """

    tokens: np.ndarray
    sizes: np.ndarray
    counters: tuple[int, ...]
    values: np.ndarray | None = None


class BlockEncoder:
    """Encodes blocks of whole lines, each an object with ``question`` and ``answer``."""

    def __init__(self, settings: Settings) -> None:
        from tokenizers import Tokenizer

        self.settings = settings
        self.tokenizer: Any = Tokenizer.from_str(settings.tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.by_words = splits_into_words(json.loads(settings.tokenizer))
        self.words: dict[str, list[int]] = {}
        self.read = locate_reader(settings.reader) if settings.reader else None

    def __call__(self, block: bytes) -> EncodedBlock:
        settings, limit = self.settings, self.settings.max_length
        # The lines are ASCII JSON, so a line feed stands between objects and nowhere else.
        try:
            rows = json.loads(b"[" + block.rstrip(b"\n").replace(b"\n", b",") + b"]")
        except ValueError as error:
            raise UserError("prepared data: a line is no JSON; delete its folder and prepare it again.") from error
        questions, question_values = self._encode([row["question"] for row in rows])
        # The prefix parts an answer from its question; a document has none.
        prefixes = [settings.answer_prefix if row["question"] else "" for row in rows]
        answers, answer_values = self._encode(
            [prefix + row["answer"] for prefix, row in zip(prefixes, rows, strict=True)]
        )
        truncated = unknown = 0
        flat: list[int] = []
        values: list[float] = []
        sizes: list[int] = []
        for index, (question, answer) in enumerate(zip(questions, answers, strict=True)):
            unknown += settings.unknown in question or settings.unknown in answer
            if not settings.decoder_only:
                question.append(settings.end)
            answer.append(settings.end)
            if settings.has_values:
                values += self._values(question, question_values[index])[-limit:]
                values += self._values(answer, answer_values[index])
                if settings.number_token >= 0 and settings.number_token not in answer:
                    raise UserError(
                        f"{_quoted(rows[index])} has no number, and this model predicts one: take another model"
                    )
                if settings.keep_target:
                    values[-1] = target_of(rows[index])
            if len(question) > limit:
                truncated += 1
                question = question[-limit:]
            flat += question
            flat += answer
            sizes += (len(question), len(answer))
        counted = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        longest = (counted[:, 0], counted[:, 1], counted.sum(axis=1))
        counters = (truncated, unknown, *(int(column.max(initial=0)) for column in longest))
        numbers = np.array(values, dtype=np.float64) if settings.has_values else None
        return EncodedBlock(np.array(flat, dtype=settings.dtype), counted.ravel(), counters, numbers)

    def _encode(self, texts: list[str]) -> tuple[list[list[int]], list[Values]]:
        if self.read is None:
            return self._ids(texts), [[]] * len(texts)
        written = [self.read(text) for text in texts]
        return self._ids([text for text, _ in written]), [values for _, values in written]

    def _values(self, ids: list[int], numbers: Values) -> Values:
        values = [1.0] * len(ids)
        if numbers:
            places = [place for place, token in enumerate(ids) if token == self.settings.number_token]
            for place, number in zip(places, numbers, strict=True):
                values[place] = number
        return values

    def _ids(self, texts: list[str]) -> list[list[int]]:
        if not self.by_words:
            return self._tokenize(texts)
        # Normalization leaves printable ASCII alone; any other text might gain or lose a space by it.
        plain = [text.isascii() and text.isprintable() for text in texts]
        words = [text.split(" ") if fits else [] for text, fits in zip(texts, plain, strict=True)]
        others = iter(self._tokenize([text for text, fits in zip(texts, plain, strict=True) if not fits]))
        if len(self.words) > REMEMBERED_WORDS:
            self.words.clear()
        new = list(set(chain.from_iterable(words)).difference(self.words))
        self.words.update(zip(new, self._tokenize(new), strict=True))
        known = self.words.__getitem__
        return [
            list(chain.from_iterable(map(known, line))) if fits else next(others)
            for line, fits in zip(words, plain, strict=True)
        ]

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def locate_reader(name: str) -> Reader:
    """The function at a dotted name; ``name:N`` sets its ``max_place``. ``ntl.config`` would be slow to import here."""
    path, _, number = name.partition(":")
    module, _, function = path.rpartition(".")
    found = getattr(import_module(module), function)
    return partial(found, max_place=int(number)) if number else found


def target_of(row: dict[str, Any]) -> float:
    number = parse_number(row["answer"])
    value = math.inf if number is None else float(number)
    if not math.isfinite(value):
        raise UserError(f"{_quoted(row)} is no number: take another model")
    return value


def _quoted(row: dict[str, Any]) -> str:
    return f"the answer {row['answer'][:60]!r} of {row['question'][:60]!r}"


def splits_into_words(tokenizer: dict[str, Any]) -> bool:
    """Whether this tokenizer.json encodes each word between spaces by itself, so that a word can be encoded once.

    True for T5's: white space is where it splits first, every word gets the same mark, and no added token has a space.
    """
    normalizer, steps = tokenizer["normalizer"], (tokenizer["pre_tokenizer"] or {}).get("pretokenizers", [])
    marks = [step.get("prepend_scheme") for step in steps if step["type"] == "Metaspace"]
    return (
        (normalizer is None or normalizer["type"] == "Precompiled")
        and bool(steps)
        and steps[0]["type"] == "WhitespaceSplit"
        and {step["type"] for step in steps} <= {"WhitespaceSplit", "Metaspace", "Split"}
        and all(mark == "always" for mark in marks)
        and not any(" " in added["content"] for added in tokenizer["added_tokens"])
    )


def combine(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """``COUNTERS`` of two parts as those of the whole."""
    sums = [a + b for a, b in zip(first[:2], second[:2], strict=True)]
    return (*sums, *(max(a, b) for a, b in zip(first[2:], second[2:], strict=True)))


@dataclass
class Failure:
    text: str
    by_user: bool


def serve(handle: int) -> None:
    """Receive the settings, then a block at a time, over a file descriptor; send back what it is encoded to.

    Ends when the other process does, however that ends.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with suppress(EOFError, ConnectionError), Connection(handle) as connection:
        encode = BlockEncoder(connection.recv())
        while True:
            block = connection.recv_bytes()
            answer: EncodedBlock | Failure
            try:
                answer = encode(block)
            except UserError as error:
                answer = Failure(str(error), by_user=True)
            except Exception:
                answer = Failure(traceback.format_exc().strip().splitlines()[-1], by_user=False)
            connection.send(answer)
