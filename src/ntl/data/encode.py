"""Examples to token ids, once per data set and tokenizer, by the tokenizer's own threads."""

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
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
    decoder_only: bool,
    max_length: int,
    keep_target: bool = False,
    chat: Chat | None = None,
    weighted: bool = False,
    exclude: str = "",
    log: Callable[[str], None] = lambda line: None,
) -> EncodedDataset:
    """Tokenize question and answer of every row, or open what an earlier run tokenized.

    Set TOKENIZERS_PARALLELISM=false to tokenize in one thread.

    Args:
        rows: Returns the rows; called only if they have to be tokenized.
        key: The content of the rows, for example the sha256 of their file. Never a path.
        decoder_only: The answer continues the question's text; else each is a text of its own.
        max_length: Longest question in tokens; of a longer one the beginning is cut off, since the question proper
            stands at the end. ``about["truncated"]`` counts them.
        keep_target: The answers are numbers, and the end token of each gets its value.
        chat: The template that questions and answers go through, if any.
        weighted: Rows may have a ``weight``, which their answers' tokens get (``ntl.data.dataset.Example``).
        exclude: A regular expression; the tokens of answers that it matches have weight 0 in the number loss.
            ``about["excluded"]`` counts them, of ``about["numbers"]``.
    """
    reader = getattr(tokenizer, "reader", "")
    parts = [FORMAT, key, tokenizer_fingerprint(tokenizer), decoder_only, max_length, reader, keep_target]
    # The end token is named beside tokenizer.json, which a chat model may share with another.
    parts += [tokenizer.eos_token_id, prefix_ids(tokenizer), *(chat.key if chat else ())]
    parts += ["weighted"] * weighted + ["excluded of", exclude] * bool(exclude)
    folder = cache_dir / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    settings: dict[str, Any] = {"decoder_only": decoder_only, "max_length": max_length, "keep_target": keep_target}
    settings |= {"chat": chat, "weighted": weighted, "exclude": exclude}

    def find() -> EncodedDataset | None:
        try:
            return EncodedDataset(folder) if folder.is_dir() else None
        except (ValueError, KeyError, TypeError, OSError):  # damaged: tokenized again
            return None

    def write(new: Path) -> None:
        encode = Encoder(tokenizer, **settings)
        write_encoded(
            new, _blocks(rows(), encode, log), encode.dtype, with_values=encode.has_values, weights=encode.columns
        )

    return make_once(folder, find, write, log, "write token ids to")


def write_encoded(
    folder: Path, blocks: Iterable["Block"], dtype: str, *, with_values: bool = False, weights: int = 0
) -> None:
    """Write blocks of token ids into a folder, as ``EncodedDataset`` reads them. Memory does not grow with them."""
    about: dict[str, int] = {"truncated": 0, "unknown": 0, **({"excluded": 0, "numbers": 0} if weights > 1 else {})}
    names = ["tokens", "offsets", *(["values"] if with_values else []), *(["weights"] if weights else [])]
    total, offsets, longest = 0, 1, {"question": 0, "answer": 0, "example": 0}
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / f"{name}.bin", "wb")) for name in names}
        files["offsets"].write(np.zeros(1, "<i8").tobytes())
        for block in blocks:
            files["tokens"].write(block.tokens.astype(dtype, copy=False).tobytes())
            files["offsets"].write((total + np.cumsum(block.sizes)).astype("<i8").tobytes())
            if block.values is not None:
                files["values"].write(block.values.astype("<f8", copy=False).tobytes())
            if block.weights is not None:
                files["weights"].write(block.weights.astype("<f4", copy=False).tobytes())
            total, offsets = total + len(block.tokens), offsets + len(block.sizes)
            for name in about:
                about[name] += getattr(block, name)
            questions, answers = block.sizes[::2], block.sizes[1::2]
            for part, sizes in (("question", questions), ("answer", answers), ("example", questions + answers)):
                longest[part] = max(longest[part], int(sizes.max(initial=0)))
    for name in names:
        sync(folder / f"{name}.bin")
    about |= {f"longest_{part}": size for part, size in longest.items()}
    layout = {"dtype": dtype, "tokens": total, "offsets": offsets, "has_values": with_values}
    layout |= {"weights": weights} if weights else {}
    (folder / ABOUT).write_text(json.dumps({**about, **layout}), encoding="utf-8")


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
    block = Encoder(tokenizer, **settings)(rows)
    found: dict[str, list[np.ndarray]] = {}
    for name, values in {"ids": block.tokens, "values": block.values, "weights": block.weights}.items():
        if values is None:
            continue
        pieces = np.split(values, block.sizes.cumsum()[:-1])[: 2 * len(rows)]
        found |= {f"question_{name}": pieces[::2], f"answer_{name}": pieces[1::2]}
    return [dict(zip(found, example, strict=True)) for example in zip(*found.values(), strict=True)]


def answer_text(answer: str, tokenizer: Any, decoder_only: bool) -> str:
    """The answer as it follows the question: after a space if the tokenizer marks a word start only there.

    Byte-level tokenizers and Gemma's do; T5's and Llama 2's mark the start of every text.
    """
    return f" {answer}" if decoder_only and _is_marked(" 0", tokenizer) and not _is_marked("0", tokenizer) else answer


def prefix_ids(tokenizer: Any) -> list[int]:
    """The special tokens that the tokenizer puts before a text, as Llama's and Gemma's do: none for GPT-2 and T5."""
    backend = tokenizer.backend_tokenizer
    whole, bare = (backend.encode("0", add_special_tokens=special).ids for special in (True, False))
    starts = range(len(whole) - len(bare) + 1)
    return next((whole[:start] for start in starts if whole[start : start + len(bare)] == bare), [])


def _is_marked(text: str, tokenizer: Any) -> bool:
    return tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).tokens[0].startswith(WORD_STARTS)


class Block(NamedTuple):
    """The token ids of questions and answers in turn, the length of each, and, if asked for, a value for each token.

    ``truncated`` questions lost their beginning, ``unknown`` examples have an unknown token.
    """

    tokens: np.ndarray
    sizes: np.ndarray
    values: np.ndarray | None = None
    truncated: int = 0
    unknown: int = 0
    weights: np.ndarray | None = None
    excluded: int = 0
    numbers: int = 0


class Encoder:
    """Rows with ``question`` and ``answer`` to token ids; the settings are those of ``encode_dataset``.

    The question begins as a text of this tokenizer does (``prefix_ids``), also where its beginning is cut off; the
    answer goes on behind it and has the end token. A special token in a text is text.

    Where tokens have values, that of a number token is its number, that of the end token of an answer with
    ``keep_target`` the answer's, and that of any other token 1.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        decoder_only: bool,
        max_length: int,
        keep_target: bool = False,
        chat: Chat | None = None,
        weighted: bool = False,
        exclude: str = "",
    ) -> None:
        self.ids_of = WordEncoder(chat.plain if chat else text_backend(tokenizer))
        self.read = tokenizer.number_reader() if hasattr(tokenizer, "number_reader") else None
        self.number_token = getattr(tokenizer, "number_token_id", None)
        self.end, self.unknown = tokenizer.eos_token_id, tokenizer.unk_token_id
        self.prefix = [] if chat else prefix_ids(tokenizer)  # a template writes its own
        self.answer_prefix = answer_text("", tokenizer, decoder_only)
        self.decoder_only, self.max_length, self.keep_target = decoder_only, max_length, keep_target
        self.chat = chat
        self.columns = 2 if exclude else int(weighted)
        self.texts = TokenTexts(tokenizer) if self.columns else None
        self.pattern = re.compile(exclude) if exclude else None
        self.has_values = keep_target or self.number_token is not None
        self.dtype = "<u2" if max(tokenizer.get_vocab().values()) < 2**16 else "<i4"

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
        truncated, excluded, numbers, values, texts, weights = 0, 0, 0, [], [], []
        for index, (question, answer) in enumerate(zip(questions, answers, strict=True)):
            if not self.decoder_only:
                question.append(self.end)
            if not self.chat:
                answer.append(self.end)
            first = max(len(self.prefix) + len(question) - self.max_length, 0)
            truncated += first > 0
            if self.has_values:
                before = [1.0] * len(self.prefix)
                values += before + self._values(question, question_numbers[index])[first:]
                values += self._values(answer, answer_numbers[index])
                if self.number_token is not None and self.number_token not in answer:
                    raise UserError(f"{_quoted(rows[index])} has no number, and this model predicts one: {REMEDY}")
                if self.keep_target:
                    values[-1] = _target(rows[index])
            texts += self.prefix + question[first:], answer
            if self.texts is not None:
                own, left_out, of = self._weights(rows[index], self.texts(answer))
                excluded, numbers = excluded + left_out, numbers + of
                weights += np.ones((len(texts[-2]), *own.shape[1:]), np.float32), own
        return Block(
            np.fromiter(chain.from_iterable(texts), self.dtype),
            np.fromiter(map(len, texts), np.int64),
            np.array(values) if self.has_values else None,
            truncated,
            unknown,
            np.concatenate(weights) if weights else None,
            excluded,
            numbers,
        )

    def _weights(self, row: Row, texts: list[bytes]) -> tuple[np.ndarray, int, int]:
        """The weights of an answer's tokens, how many of these are numbers that are left out, and of how many."""
        try:
            own = of_parts(texts, row["answer"], json.loads(row.get("weight", "1")))
        except ValueError as error:
            raise UserError(f"{_quoted(row)}: {error}.") from error
        if self.pattern is None:
            return own, 0, 0
        left_out = matched(texts, self.pattern)
        numbers = np.array([any(chr(byte) in "0123456789" for byte in text) for text in texts], bool)
        return np.stack([own, own * ~left_out], axis=-1), int((numbers & left_out).sum()), int(numbers.sum())

    def _encode(self, texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        """The ids of each text, and the numbers that its number tokens stand for."""
        numbers: list[list[float]] = [[]] * len(texts)
        if self.read is not None:
            texts, numbers = map(list, zip(*map(self.read, texts), strict=True))
        return self.ids_of(texts), numbers

    def _values(self, ids: list[int], numbers: list[float]) -> list[float]:
        values = [1.0] * len(ids)
        places = [place for place, token in enumerate(ids) if token == self.number_token]
        for place, number in zip(places, numbers, strict=True):
            values[place] = number
        return values


def _target(row: Row) -> float:
    number = parse_number(row["answer"])
    value = math.inf if number is None else float(number)
    if not math.isfinite(value):
        raise UserError(f"{_quoted(row)} is no number: {REMEDY}")
    return value


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
    if step is None:
        return []
    return step.get("pretokenizers") or step.get("normalizers") or [step]
