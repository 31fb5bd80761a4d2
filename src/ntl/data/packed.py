"""Documents end to end, cut into examples of equal length, for language modelling.

The stream of a split is: end token, document, end token, document, end token, and so on, as for GPT-2. Nothing is
masked between documents, and the first token of one is predicted from the end token before it.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ntl.data.encoded import EncodedDataset


class Packed(EncodedDataset):
    """The token ids of a folder of documents, encoded without questions, as examples of ``length`` labels.

    ``dataset[i]`` has the labels ``answer_ids`` (T,), tokens ``i * length`` up to ``(i + 1) * length`` of the stream,
    and in ``question_ids`` (1,) the token before them. T is ``length`` in all examples but the last.
    """

    def __init__(self, folder: Path, length: int, end: int) -> None:
        super().__init__(folder)
        self.length, self.end = length, end
        longest = min(length, len(self.tokens))
        self.about |= {"longest_question": 1, "longest_answer": longest, "longest_example": longest + 1}

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.folder, self.length, self.end)

    def __len__(self) -> int:
        return -(-len(self.tokens) // self.length)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        start, stop = self._bounds(index)
        self._tokens.check(max(start - 1, 0), stop)
        before = self.tokens[start - 1 : start] if start else np.array([self.end], self.tokens.dtype)
        return {"question_ids": before, "answer_ids": self.tokens[start:stop]}

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
        self._offsets.check(0, len(self.offsets))
        return np.ascontiguousarray(self.offsets[::2])
