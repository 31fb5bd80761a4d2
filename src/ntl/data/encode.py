"""Examples to token ids, once per data and tokenizer, kept as memory-mapped arrays."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ntl.tokenizers import tokenizer_fingerprint

CHUNK = 20_000
FORMAT = 2


class EncodedDataset:
    """Token ids of questions and answers, read from disk on demand.

    ``dataset[i]`` is ``{"question_ids": (S,), "answer_ids": (T,)}``, both int32, the answer with its end token.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens = np.load(folder / "tokens.npy", mmap_mode="r").view(
            np.ndarray
        )  # the subclass makes each slice slow
        self.offsets = np.load(folder / "offsets.npy", mmap_mode="r").view(np.ndarray)
        self.about = json.loads((folder / "about.json").read_text(encoding="utf-8"))

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // 2

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        start, middle, end = self.offsets[2 * index : 2 * index + 3]
        return {"question_ids": self.tokens[start:middle], "answer_ids": self.tokens[middle:end]}

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        return [self[index] for index in indices]

    def first(self, rows: int) -> "Head":
        """The first ``rows`` examples, or all when ``rows`` is 0."""
        return Head(self, min(rows, len(self)) if rows else len(self))


class Head:
    """The first rows of an encoded data set."""

    def __init__(self, dataset: EncodedDataset, rows: int) -> None:
        self.dataset = dataset
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if not 0 <= index < self.rows:
            raise IndexError(index)
        return self.dataset[index]


def encode_dataset(
    rows: Iterable[Mapping[str, str]], tokenizer: Any, *, cache_dir: Path, key: str, decoder_only: bool, max_length: int
) -> EncodedDataset:
    """Tokenize question and answer of every row, or open what an earlier run tokenized.

    Args:
        key: The content of the rows, for example the sha256 of their file. Never a path.
        decoder_only: The answer continues the question's text; else each is a text of its own.
        max_length: Longest question in tokens; a longer one loses its beginning, since the question proper stands
            at the end. ``about["truncated"]`` counts them.
    """
    parts = [FORMAT, key, tokenizer_fingerprint(tokenizer), decoder_only, max_length]
    folder = cache_dir / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    if (folder / "about.json").is_file():
        return EncodedDataset(folder)
    cache_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".encoding-", dir=cache_dir))
    try:
        _write(scratch, rows, tokenizer, decoder_only, max_length)
        try:
            os.replace(scratch, folder)
        except OSError:
            # Another process was first; the content is the same.
            if not (folder / "about.json").is_file():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return EncodedDataset(folder)


def _chunks(rows: Iterable[Mapping[str, str]]) -> Iterator[list[Mapping[str, str]]]:
    iterator = iter(rows)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def answer_text(answer: str, tokenizer: Any, decoder_only: bool) -> str:
    """The answer as it follows the question: a byte-level tokenizer needs the space, a word-start mark implies it."""
    return f" {answer}" if decoder_only and _is_byte_level(tokenizer) else answer


def _is_byte_level(tokenizer: Any) -> bool:
    return type(tokenizer.backend_tokenizer.decoder).__name__ == "ByteLevel"


def _write(folder: Path, rows: Iterable[Mapping[str, str]], tokenizer: Any, decoder_only: bool, limit: int) -> None:
    tokens: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    truncated = unknown = longest_answer = 0
    end = [tokenizer.eos_token_id]
    for chunk in _chunks(rows):
        questions = tokenizer([row["question"] for row in chunk], add_special_tokens=False)["input_ids"]
        texts = [answer_text(row["answer"], tokenizer, decoder_only) for row in chunk]
        answers = tokenizer(texts, add_special_tokens=False)["input_ids"]
        flat: list[int] = []
        sizes: list[int] = []
        for question, answer in zip(questions, answers, strict=True):
            question = question if decoder_only else question + end
            truncated += len(question) > limit
            unknown += tokenizer.unk_token_id in question or tokenizer.unk_token_id in answer
            question, answer = question[-limit:], answer + end
            flat += question
            flat += answer
            sizes += (len(question), len(answer))
            longest_answer = max(longest_answer, len(answer))
        tokens.append(np.asarray(flat, dtype=np.int32))
        lengths.append(np.asarray(sizes, dtype=np.int64))
    np.save(folder / "tokens.npy", np.concatenate(tokens) if tokens else np.zeros(0, np.int32))
    offsets = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    np.save(folder / "offsets.npy", offsets)
    about = {"truncated": truncated, "unknown": unknown, "longest_answer": longest_answer}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
