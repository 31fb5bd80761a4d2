"""Examples to token ids, once per data set and tokenizer, by the tokenizer's own threads."""

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from tokenizers import Tokenizer

from ntl.data.chat import Chat
from ntl.data.encoded import IDS, LENGTHS, EncodedDataset, Packer
from ntl.data.weights import TokenTexts, matched, of_parts
from ntl.numbers.text import parse_number
from ntl.system.errors import UserError
from ntl.system.files import make_once, sync
from ntl.tokenizers.load import text_backend, tokenizer_fingerprint

FORMAT = 8
WORD_STARTS = ("\u2581", "\u0120")  # sentencepiece's, and a byte-level space
CHUNK = 5_000  # rows encoded at a time
REMEDY = "take another model"
Row = Mapping[str, Any]


def encode_dataset(
    rows: Callable[[], Sequence[Row]],
    tokenizer: Any,
    *,
    cache_dir: Path,
    key: str,
    packed: bool = False,
    log: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> EncodedDataset:
    """Tokenize question and answer of every row, or open what an earlier run tokenized.

    Set TOKENIZERS_PARALLELISM=false to tokenize in one thread.

    Args:
        rows: Returns the rows; called only if they have to be tokenized.
        key: The content of the rows, for example the sha256 of their file. Never a path.
        packed: The answers are documents, which ``Packer`` makes examples of ``max_length`` labels of.
        settings: Those of ``Encoder``.
    """
    encode = Encoder(tokenizer, **settings)
    # The end token is named beside tokenizer.json, which a chat model may share with another.
    decides = [FORMAT, key, packed, tokenizer_fingerprint(tokenizer), tokenizer.eos_token_id, prefix_ids(tokenizer)]
    decides += [encode.decoder_only, encode.max_length, encode.keep_target, encode.weighted, encode.exclude]
    decides += [f"{encode.read.__module__}.{encode.read.__name__}" if encode.read else ""]
    decides += encode.chat.key if encode.chat else []
    folder = cache_dir / hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]

    def find() -> EncodedDataset | None:
        try:
            return EncodedDataset(folder) if folder.is_dir() else None
        except (ValueError, OSError):  # damaged: tokenized again
            return None

    def write(new: Path) -> None:
        text = rows()
        if len(text) > CHUNK:
            log(f"tokenizing {len(text):,} examples")
        pack = Packer(encode.max_length, encode.end) if packed else None
        left, schema = iter(text), encode.schema(packed)
        with open(new / IDS, "wb") as stream, pyarrow.ipc.new_stream(stream, schema) as writer:
            for end in range(CHUNK, len(text) + CHUNK, CHUNK):
                columns = encode([*islice(left, CHUNK)])
                if pack:
                    columns = pack(columns, is_last=end >= len(text))
                writer.write_batch(pyarrow.record_batch([columns[name] for name in schema.names], schema))
        sync(new / IDS)

    return make_once(folder, find, write, log, "write token ids to")


def encode_rows(rows: Sequence[Row], tokenizer: Any, **settings: Any) -> list[dict[str, np.ndarray]]:
    """A few rows, in memory: examples as those of an ``EncodedDataset``. ``settings`` are those of ``Encoder``."""
    encode = Encoder(tokenizer, **settings)
    columns = {name: column for name, column in encode(rows).items() if name in encode.arrays}
    return [
        {name: np.array(each, encode.arrays[name]) for name, each in zip(columns, example, strict=True)}
        for example in zip(*columns.values(), strict=True)
    ]


def needs_space(tokenizer: Any) -> bool:
    """Whether the tokenizer marks a word start only after a space, so that an answer follows its question after one.

    Byte-level tokenizers and Gemma's do; T5's and Llama 2's mark the start of every text.
    """
    first = [tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).tokens[0] for text in ("0", " 0")]
    return [token.startswith(WORD_STARTS) for token in first] == [False, True]


def prefix_ids(tokenizer: Any) -> list[int]:
    """The special tokens that the tokenizer puts before a text, as Llama's and Gemma's do: none for GPT-2 and T5."""
    backend = tokenizer.backend_tokenizer
    whole, bare = (backend.encode("0", add_special_tokens=special).ids for special in (True, False))
    starts = range(len(whole) - len(bare) + 1)
    return next((whole[:start] for start in starts if whole[start : start + len(bare)] == bare), [])


@dataclass
class Encoder:
    """Rows with ``question`` and ``answer`` to token ids.

    The question begins as a text of this tokenizer does (``prefix_ids``), also where its beginning is cut off, but for
    a chat, which then begins anywhere; the answer goes on behind it and has the end token. A special token in a text is
    text. Where tokens have values, that of a number token is its number, and that of any other token 1.

    Args:
        decoder_only: The answer continues the question's text; else each is a text of its own.
        max_length: Longest question in tokens; of a longer one the beginning is cut off, since the question proper
            stands at the end. ``about["truncated"]`` counts them.
        keep_target: The answers are numbers, and the end token of each gets its value.
        chat: The template that questions and answers go through, if any.
        weighted: Rows may have a ``weight``, which their answers' tokens get (``ntl.data.dataset.Example``).
        exclude: A regular expression; the tokens of answers that it matches have weight 0 in the number loss.
            ``about["excluded"]`` counts them, of ``about["numbers"]``.
    """

    tokenizer: Any
    decoder_only: bool
    max_length: int
    keep_target: bool = False
    chat: Chat | None = None
    weighted: bool = False
    exclude: str = ""

    def __post_init__(self) -> None:
        tokenizer, chat = self.tokenizer, self.chat
        self.read = tokenizer.number_reader() if hasattr(tokenizer, "number_reader") else None
        self.number_token = getattr(tokenizer, "number_token_id", None)
        self.end, self.unknown = tokenizer.eos_token_id, tokenizer.unk_token_id
        if chat and self.unknown in (self.end, tokenizer.bos_token_id, chat.end_id):  # which the template writes
            self.unknown = None
        self.prefix = [] if chat else prefix_ids(tokenizer)  # a template writes its own
        self.answer_prefix = " " if self.decoder_only and needs_space(tokenizer) else ""
        self.pattern = re.compile(self.exclude) if self.exclude else None

    @cached_property  # as the next two, not where token ids are on disk: they read the vocabulary
    def backend(self) -> Tokenizer:
        return text_backend(self.tokenizer)

    @cached_property
    def texts(self) -> TokenTexts | None:
        return TokenTexts(self.tokenizer) if self.weighted or self.exclude else None

    @cached_property
    def arrays(self) -> dict[str, str]:
        """What each example has an array of, and its type."""
        ids = "uint16" if max(self.tokenizer.get_vocab().values()) < 2**16 else "int32"
        found = {"question_ids": ids, "answer_ids": ids}
        if self.keep_target or self.number_token is not None:
            found |= {"question_values": "float64", "answer_values": "float64"}
        return found | ({"answer_weights": "float32"} if self.texts else {})

    def schema(self, packed: bool = False) -> Any:
        """The types of the columns; of packed examples, also of their documents."""
        from datasets import Features, List, Value

        found: dict[str, Any] = {name: List(Value(dtype)) for name, dtype in self.arrays.items()}
        if self.pattern:
            found["answer_weights"] = List(found["answer_weights"])
        found |= {"documents": List(Value("int32"))} if packed else {}
        counts = [*LENGTHS, "truncated", "unknown", *(["excluded", "numbers"] if self.pattern else [])]
        return Features({**found, **dict.fromkeys(counts, Value("int32"))}).arrow_schema

    def __call__(self, rows: Sequence[Row]) -> dict[str, list[Any]]:
        """The columns of ``schema``: those arrays, the lengths, and what ``EncodedDataset.about`` counts."""
        question_numbers, answer_numbers = [], []
        if self.chat:
            questions, answers = self.chat.encode(rows)
        else:
            if wrong := next((row for row in rows if row.get("before")), None):
                remedy = "set dataset.format=chat, and take a model whose tokenizer has one"
                raise UserError(f"{_quoted(wrong)} has earlier messages, which need a chat template: {remedy}")
            # The prefix parts an answer from its question; a document has none.
            prefixed = [(self.answer_prefix if row["question"] else "") + row["answer"] for row in rows]
            questions, question_numbers = self._encode([row["question"] for row in rows])
            answers, answer_numbers = self._encode(prefixed)
        columns = defaultdict[str, list[Any]](list)
        for index, (row, question, answer) in enumerate(zip(rows, questions, answers, strict=True)):
            unknown = self.unknown in question or self.unknown in answer
            if not self.decoder_only:
                question.append(self.end)
            if not self.chat:
                answer.append(self.end)
            first = max(len(self.prefix) + len(question) - self.max_length, 0)
            question = self.prefix + question[first:]
            if row["question"] and not question:
                raise UserError(f"{_quoted(row)}: the tokenizer writes this question as no token; leave it out.")
            example = {"question_ids": question, "answer_ids": answer, "question": len(question), "answer": len(answer)}
            example |= {"truncated": int(first > 0), "unknown": int(unknown)}
            if "answer_values" in self.arrays:
                values = [np.ones(len(question)), np.ones(len(answer))]
                if self.number_token is not None:
                    if self.number_token not in answer:
                        raise UserError(f"{_quoted(row)} has no number, and this model predicts one: {REMEDY}")
                    lost = len(question_numbers[index]) - question.count(self.number_token)
                    numbers = [question_numbers[index][lost:], answer_numbers[index]]
                    for own, ids, known in zip(values, (question, answer), numbers, strict=True):
                        own[np.equal(ids, self.number_token)] = known  # an error where these are not as many
                if self.keep_target:
                    values[1][-1] = _target(row)
                example |= {"question_values": values[0], "answer_values": values[1]}
            if self.texts:
                example |= self._weights(row, self.texts(answer))
            for name, value in example.items():
                columns[name].append(value)
        return columns

    def _weights(self, row: Row, texts: list[bytes]) -> dict[str, Any]:
        """The weights of an answer's tokens, and the counts of its numbers, and of those that are left out."""
        try:
            own = of_parts(texts, row["answer"], json.loads(row.get("weight", "1")))
        except ValueError as error:
            raise UserError(f"{_quoted(row)}: {error}.") from error
        if self.pattern is None:
            return {"answer_weights": own}
        left_out = matched(texts, self.pattern)
        numbers = np.array([re.search(b"[0-9]", text) for text in texts], bool)
        counts = {"excluded": int((numbers & left_out).sum()), "numbers": int(numbers.sum())}
        return {"answer_weights": [*np.stack([own, own * ~left_out], axis=-1)], **counts}

    def _encode(self, texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        """The ids of each text, and the numbers that its number tokens stand for."""
        numbers: list[list[float]] = [[]] * len(texts)
        if self.read is not None:
            texts, numbers = map(list, zip(*map(self.read, texts), strict=True))
        found = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in found], numbers


def _target(row: Row) -> float:
    number = parse_number(row["answer"])
    if number is None or not math.isfinite(number):
        raise UserError(f"{_quoted(row)} is no number: {REMEDY}")
    return float(number)


def _quoted(row: Row) -> str:
    return f"the answer {row['answer'][:60]!r} of {row['question'][:60]!r}"
