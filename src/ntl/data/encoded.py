"""Token ids on disk, and data sets that read them.

A folder holds ``tokens.bin`` (all ids, one after the other), ``offsets.bin`` (2 N + 1 int64: where each question and
each answer begins), where tokens have values ``values.bin`` with one float64 for each, where they have weights
``weights.bin`` with one float32 or two for each (``ntl.data.weights``), and ``about.json``. Against
Arrow columns of lists, a random batch of mathematics is read in a third of the time, as arrays in a twelfth.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Subset

ABOUT = "about.json"


class EncodedDataset:
    """Token ids of questions and answers, read from disk on demand.

    ``dataset[i]`` is ``{"question_ids": (S,), "answer_ids": (T,)}``, both uint16 where the vocabulary allows and int32
    otherwise, the answer with its end token; where tokens have values (``ntl.data.encode.Encoder``), also
    ``question_values`` (S,) and ``answer_values`` (T,) float64, and where they have weights ``answer_weights``, (T,) or
    (T, 2) float32. ``about`` counts truncated questions and examples with unknown tokens, and has the longest question,
    answer and example in tokens. ValueError, KeyError or OSError where a file is missing or was cut.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        about: dict[str, Any] = json.loads((folder / ABOUT).read_bytes())
        dtype, count, columns = about.pop("dtype"), about.pop("tokens"), about.pop("weights", 0)
        self.offsets = _mapped(folder / "offsets.bin", "<i8", about.pop("offsets"))
        self.tokens = _mapped(folder / "tokens.bin", dtype, count)
        self.values = _mapped(folder / "values.bin", "<f8", count) if about.pop("has_values") else None
        shape = (count, columns) if columns > 1 else (count,)
        self.weights = _mapped(folder / "weights.bin", "<f4", *shape) if columns else None
        self.about: dict[str, int] = about

    def __reduce__(self) -> tuple[Any, ...]:
        # A data worker that is not forked opens the files itself.
        return type(self), (self.folder,)

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // 2

    def last_values(self) -> np.ndarray:
        """The value of each example's last token, which is its answer where ``keep_target`` was set."""
        assert self.values is not None
        return self.values[self.offsets[2::2] - 1]

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start, middle, end = self.offsets[2 * index : 2 * index + 3].tolist()
        example = {"question_ids": self.tokens[start:middle], "answer_ids": self.tokens[middle:end]}
        if self.values is not None:
            example |= {"question_values": self.values[start:middle], "answer_values": self.values[middle:end]}
        if self.weights is not None:
            example["answer_weights"] = self.weights[middle:end]
        return example

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each example (int64), question and answer together."""
        return self.offsets[2 * indices + 2] - self.offsets[2 * indices]

    def first(self, rows: int) -> Subset[dict[str, np.ndarray]]:
        """The first ``rows`` examples, or all when ``rows`` is 0."""
        dataset: Any = self
        return Subset(dataset, range(min(rows, len(self)) if rows else len(self)))


class Packed(EncodedDataset):
    """Documents, encoded without questions, end to end: as examples of ``length`` labels, for language modelling.

    The stream of a split is: end token, document, end token, document, end token, and so on, as for GPT-2. Nothing is
    masked between documents, and the first token of one is predicted from the end token before it. ``dataset[i]`` has
    the labels ``answer_ids`` (T,), tokens ``i * length`` up to ``(i + 1) * length`` of the stream, and in
    ``question_ids`` (1,) the token before them. T is ``length`` in all examples but the last.
    """

    def __init__(self, folder: Path, length: int, end: int) -> None:
        super().__init__(folder)
        self.length, self.end = length, end
        longest = min(length, len(self.tokens))
        self.about |= {"longest_question": 1, "longest_answer": longest, "longest_example": longest + 1}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.length, self.end)

    def __len__(self) -> int:
        return -(-len(self.tokens) // self.length)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        start, stop = self._bounds(index)
        before = self.tokens[start - 1 : start] if start else np.array([self.end], self.tokens.dtype)
        example = {"question_ids": before, "answer_ids": self.tokens[start:stop]}
        return example if self.weights is None else {**example, "answer_weights": self.weights[start:stop]}

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each example (int64), the one before its labels included."""
        return np.minimum(self.length, len(self.tokens) - indices * self.length) + 1

    def documents(self, index: int) -> tuple[int, list[int]]:
        """The first document that the labels of an example belong to, and how many belong to each from there on."""
        start, stop = self._bounds(index)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        last = int(np.searchsorted(self._starts, stop, side="left"))
        return first, np.diff(self._starts[first : last + 1].clip(start, stop)).tolist()

    def _bounds(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return index * self.length, min((index + 1) * self.length, len(self.tokens))

    @cached_property
    def _starts(self) -> np.ndarray:
        # Where each document begins, and the end.
        return np.ascontiguousarray(self.offsets[::2])


def _mapped(path: Path, dtype: str, *shape: int) -> np.ndarray:
    # A plain array: slices of numpy's memmap class are slow. Nothing cannot be mapped.
    return np.memmap(path, dtype, "r", shape=shape).view(np.ndarray) if shape[0] else np.empty(shape, dtype)
