"""Examples to token ids, once per data set and tokenizer, by the tokenizer's own threads."""

import hashlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from ntl.data.chat import Chat
from ntl.data.encoded import ABOUT, EncodedDataset
from ntl.data.weights import TokenTexts, matched, of_parts
from ntl.numbers.text import parse_number
from ntl.system.errors import UserError
from ntl.system.files import make_once, sync
from ntl.tokenizers.load import text_backend, tokenizer_fingerprint

FORMAT = 7
WORD_STARTS = ("\u2581", "\u0120")  # sentencepiece's, and a byte-level space
CHUNK = 5_000  # rows encoded at a time
SAY_SECONDS = 15.0
REMEDY = "take another model"
# They change no printable ASCII.
_NORMALIZERS = {"Precompiled", "NFC", "NFKC"}
_KNOWN = 200_000  # words whose ids are kept, about 80 MB
Row = Mapping[str, Any]


def encode_dataset(
    rows: Callable[[], Iterable[Row]],
    tokenizer: Any,
    *,
    cache_dir: Path,
    key: str,
    log: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> EncodedDataset:
    """Tokenize question and answer of every row, or open what an earlier run tokenized.

    Set TOKENIZERS_PARALLELISM=false to tokenize in one thread.

    Args:
        rows: Returns the rows; called only if they have to be tokenized.
        key: The content of the rows, for example the sha256 of their file. Never a path.
        settings: Those of ``Encoder``.
    """
    encode = Encoder(tokenizer, **settings)
    parts = [FORMAT, key, tokenizer_fingerprint(tokenizer), encode.decoder_only, encode.max_length]
    parts += [f"{encode.read.__module__}.{encode.read.__name__}" if encode.read else "", encode.keep_target]
    # The end token is named beside tokenizer.json, which a chat model may share with another.
    parts += [tokenizer.eos_token_id, prefix_ids(tokenizer), *(encode.chat.key if encode.chat else ())]
    parts += ["weighted"] * encode.weighted + ["excluded of", encode.exclude] * bool(encode.exclude)
    folder = cache_dir / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def find() -> EncodedDataset | None:
        try:
            return EncodedDataset(folder) if folder.is_dir() else None
        except (ValueError, KeyError, TypeError, OSError):  # damaged: tokenized again
            return None

    def write(new: Path) -> None:
        write_encoded(new, _blocks(rows(), encode, log), encode.layout)

    return make_once(folder, find, write, log, "write token ids to")


def write_encoded(folder: Path, blocks: Iterable["Block"], layout: Mapping[str, Any]) -> None:
    """Write blocks of token ids into a folder, as ``EncodedDataset`` reads them. Memory does not grow with them."""
    about, total, offsets, longest = Counter(truncated=0, unknown=0), 0, 1, np.zeros(3, np.int64)
    with ExitStack() as stack:
        names = ["tokens", "offsets", *["values"] * layout["has_values"], *["weights"] * ("weights" in layout)]
        files = {name: stack.enter_context(open(folder / f"{name}.bin", "wb")) for name in names}
        files["offsets"].write(np.zeros(1, "<i8").tobytes())
        for block in blocks:
            arrays = {**block.arrays, "offsets": total + block.sizes.cumsum()}
            for name, file in files.items():
                file.write(arrays[name].tobytes())
            total, offsets = total + len(arrays["tokens"]), offsets + len(block.sizes)
            about.update(block.about)
            pairs = block.sizes.reshape(-1, 2)
            longest = np.maximum(longest, np.column_stack([pairs, pairs.sum(axis=1)]).max(axis=0, initial=0))
    for name in names:
        sync(folder / f"{name}.bin")
    longest_parts = dict(zip(("longest_question", "longest_answer", "longest_example"), longest.tolist(), strict=True))
    content = {**about, **longest_parts, **layout, "tokens": total, "offsets": offsets}
    (folder / ABOUT).write_text(json.dumps(content), encoding="utf-8")


def _blocks(rows: Iterable[Row], encode: "Encoder", log: Callable[[str], None]) -> Iterator["Block"]:
    remaining, done, shown = iter(rows), 0, time.monotonic()
    while chunk := list(islice(remaining, CHUNK)):
        yield encode(chunk)
        done += len(chunk)
        if time.monotonic() - shown >= SAY_SECONDS:
            shown = time.monotonic()
            log(f"tokenized {done:,} examples")


def encode_rows(rows: Sequence[Row], tokenizer: Any, **settings: Any) -> list[dict[str, np.ndarray]]:
    """A few rows, in memory: examples as those of an ``EncodedDataset``. ``settings`` are those of ``Encoder``."""
    block, found = Encoder(tokenizer, **settings)(rows), dict[str, list[np.ndarray]]()
    for name, values in block.arrays.items():
        pieces = np.split(values, block.sizes.cumsum()[:-1])[: 2 * len(rows)]
        part = "ids" if name == "tokens" else name
        found |= {f"question_{part}": pieces[::2], f"answer_{part}": pieces[1::2]}
    return [dict(zip(found, example, strict=True)) for example in zip(*found.values(), strict=True)]


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


class Block(NamedTuple):
    """Encoded rows: the length of each question and each answer in turn (int64), and what each of their tokens has.

    ``arrays`` are ``tokens``, which are the ids, and, if asked for, ``values`` and ``weights``. ``about`` counts: of
    ``truncated`` questions the beginning is lost, ``unknown`` examples have an unknown token.
    """

    sizes: np.ndarray
    arrays: dict[str, np.ndarray]
    about: dict[str, int]


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

    @cached_property  # as the next two, not where token ids are on disk already: they read the vocabulary
    def ids_of(self) -> "WordEncoder":
        return WordEncoder(text_backend(self.tokenizer))

    @cached_property
    def texts(self) -> TokenTexts | None:
        return TokenTexts(self.tokenizer) if self.weighted or self.exclude else None

    @cached_property
    def layout(self) -> dict[str, Any]:
        dtype = "<u2" if max(self.tokenizer.get_vocab().values()) < 2**16 else "<i4"
        layout = {"dtype": dtype, "has_values": self.keep_target or self.number_token is not None}
        return layout | ({"weights": 2 if self.exclude else 1} if self.texts else {})

    def __call__(self, rows: Sequence[Row]) -> Block:
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
        unknown = sum(self.unknown in q or self.unknown in a for q, a in zip(questions, answers, strict=True))
        about = Counter({"truncated": 0, "unknown": unknown, **({"excluded": 0, "numbers": 0} if self.pattern else {})})
        texts, numbers, weights = list[list[int]](), list[float](), list[np.ndarray]()
        for index, (row, question, answer) in enumerate(zip(rows, questions, answers, strict=True)):
            if not self.decoder_only:
                question.append(self.end)
            if not self.chat:
                answer.append(self.end)
            first = max(len(self.prefix) + len(question) - self.max_length, 0)
            about["truncated"] += first > 0
            texts += self.prefix + question[first:], answer
            if row["question"] and not texts[-2]:
                raise UserError(f"{_quoted(row)}: the tokenizer writes this question as no token; leave it out.")
            if self.number_token is not None:
                if self.number_token not in answer:
                    raise UserError(f"{_quoted(row)} has no number, and this model predicts one: {REMEDY}")
                lost = len(question_numbers[index]) - texts[-2].count(self.number_token)
                numbers += question_numbers[index][lost:] + answer_numbers[index]
            if self.texts:
                own = self._weights(row, self.texts(answer), about)
                before = np.ones_like(own[:1]) if row["question"] else own[:1]  # a document's label for its start
                weights += before.repeat(len(texts[-2]), axis=0), own
        sizes = np.fromiter(map(len, texts), np.int64)
        arrays = {"tokens": np.fromiter(chain.from_iterable(texts), self.layout["dtype"])}
        if self.layout["has_values"]:
            arrays["values"] = np.ones(len(arrays["tokens"]))
            if self.number_token is not None:
                places = np.flatnonzero(arrays["tokens"] == self.number_token)
                arrays["values"][places] = np.reshape(numbers, places.shape)  # an error where these are not as many
            if self.keep_target:
                arrays["values"][sizes.cumsum()[1::2] - 1] = [_target(row) for row in rows]
        arrays |= {"weights": np.concatenate(weights)} if self.texts else {}
        return Block(sizes, arrays, dict(about))

    def _weights(self, row: Row, texts: list[bytes], about: Counter[str]) -> np.ndarray:
        """The weights of an answer's tokens; counts its numbers, and those that are left out."""
        try:
            own = of_parts(texts, row["answer"], json.loads(row.get("weight", "1")))
        except ValueError as error:
            raise UserError(f"{_quoted(row)}: {error}.") from error
        if self.pattern is None:
            return own
        left_out = matched(texts, self.pattern)
        numbers = np.array([re.search(b"[0-9]", text) for text in texts], bool)
        about.update(excluded=int((numbers & left_out).sum()), numbers=int(numbers.sum()))
        return np.stack([own, own * ~left_out], axis=-1)

    def _encode(self, texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        """The ids of each text, and the numbers that its number tokens stand for."""
        numbers: list[list[float]] = [[]] * len(texts)
        if self.read is not None:
            texts, numbers = map(list, zip(*map(self.read, texts), strict=True))
        return self.ids_of(texts), numbers


def _target(row: Row) -> float:
    number = parse_number(row["answer"])
    if number is None or not math.isfinite(number):
        raise UserError(f"{_quoted(row)} is no number: {REMEDY}")
    return float(number)


def _quoted(row: Row) -> str:
    return f"the answer {row['answer'][:60]!r} of {row['question'][:60]!r}"


# ---- ids of texts from those of their words, where a tokenizer never looks across a space


class WordEncoder:
    """``encoder(texts)``: the ids of each text, those of ``backend`` without special tokens, from those of its words.

    Most words of a data set recur, and each is tokenized once. Tokenized whole are texts that are not of ASCII, or have
    two spaces in a row, and all texts of a tokenizer of which it is not known that it divides a text at each space.
    """

    def __init__(self, backend: Tokenizer) -> None:
        self.backend, self.known = backend, dict[str, list[int]]()
        self.divides = _divides_at_spaces(json.loads(backend.to_str()))

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [self._words(text) for text in texts]
        if len(self.known) > _KNOWN:
            self.known.clear()
        words = [word for word in dict.fromkeys(chain.from_iterable(parts)) if word not in self.known]
        whole = [text for text, words_of in zip(texts, parts, strict=True) if not words_of]
        found = (each.ids for each in self.backend.encode_batch_fast([*words, *whole], add_special_tokens=False))
        self.known.update(zip(words, found, strict=False))
        known = self.known.__getitem__
        return [[*chain.from_iterable(map(known, words_of))] if words_of else next(found) for words_of in parts]

    def _words(self, text: str) -> list[str]:
        if not (self.divides and text.isascii() and text.isprintable()) or "  " in text:
            return []
        return text.replace(" ", "\0 ").split("\0")


def _divides_at_spaces(state: dict[str, Any]) -> bool:
    """Whether no token and no rule of a tokenizer.json goes across a single space: T5's and GPT-2's kinds."""
    steps, normalizers = (_parts(state[name]) for name in ("pre_tokenizer", "normalizer"))
    by_spaces = any(each["type"] == "WhitespaceSplit" for each in steps[:1])
    of_digits = all(each["type"] == "Digits" or each.get("pattern") == {"Regex": "[0-9]"} for each in steps[:-1])
    by_bytes = of_digits and steps and steps[-1]["type"] == "ByteLevel" and steps[-1]["use_regex"]
    return (
        bool(by_spaces or by_bytes)
        and _NORMALIZERS.issuperset(each["type"] for each in normalizers)
        and all(each["special"] for each in state["added_tokens"])
    )


def _parts(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [] if step is None else step.get("pretokenizers") or step.get("normalizers") or [step]
