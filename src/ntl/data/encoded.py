"""Token ids on disk: what writes them, and data sets that read them.

A folder holds ``tokens.npy`` (all ids, one after the other), ``offsets.npy`` (2 N + 1 int64: where each question and
each answer begins), ``about.json`` and, where tokens have values, ``values.npy`` with one float64 for each. Against
Arrow columns of lists, a random batch of mathematics is read in a third of the time, as arrays in a twelfth.

``about.json`` has the CRC-32 of each array, which is compared when the folder is opened.
"""

import json
import os
import zlib
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ntl.data.files import map_open
from ntl.system.errors import UserError
from ntl.system.files import write_atomically

if TYPE_CHECKING:
    from torch.utils.data import Subset

ABOUT = "about.json"


class Damaged(UserError):
    """Token ids on disk that are not those that were written."""


class EncodedDataset:
    """Token ids of questions and answers, read from disk on demand.

    ``dataset[i]`` is ``{"question_ids": (S,), "answer_ids": (T,)}``, both uint16 where the vocabulary allows and int32
    otherwise, the answer with its end token; where tokens have values (``ntl.data.encode.Encoder``), also
    ``question_values`` (S,) and ``answer_values`` (T,) float64. ``about`` counts truncated questions and examples with
    unknown tokens, and has the longest question, answer and example in tokens. ``Damaged`` where a file is not as it
    was written; with ``check=False`` the arrays are not compared.
    """

    def __init__(self, folder: Path, *, check: bool = True) -> None:
        self.folder = folder
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            if about.pop("sum") != zlib.crc32(json.dumps(about).encode()):
                raise ValueError(f"{ABOUT} has another checksum")
            sums = about.pop("arrays")
            if wrong := [name for name in sums if check and _crc32(folder / name) != sums[name]]:
                raise ValueError(f"{wrong[0]} has another checksum")
            # Plain arrays: slices of numpy's memmap class are slow.
            arrays = {name: np.load(folder / name, mmap_mode="r").view(np.ndarray) for name in sums}
            self.tokens, self.offsets = arrays["tokens.npy"], arrays["offsets.npy"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
            raise Damaged(f"{folder}: damaged ({error}); remove this folder, and it is made again.") from error
        self.values = arrays.get("values.npy")
        self.about: dict[str, int] = about

    def __reduce__(self) -> tuple[Any, ...]:
        # A data worker that is not forked opens the files itself.
        return partial(type(self), check=False), (self.folder,)

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
        return example

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each example (int64), question and answer together."""
        return self.offsets[2 * indices + 2] - self.offsets[2 * indices]

    def first(self, rows: int) -> "Subset[dict[str, np.ndarray]]":
        """The first ``rows`` examples, or all when ``rows`` is 0."""
        # Imported here: the rest of this file needs no torch.
        from torch.utils.data import Subset

        dataset: Any = self
        return Subset(dataset, range(min(rows, len(self)) if rows else len(self)))


class Packed(EncodedDataset):
    """Documents, encoded without questions, end to end: as examples of ``length`` labels, for language modelling.

    The stream of a split is: end token, document, end token, document, end token, and so on, as for GPT-2. Nothing is
    masked between documents, and the first token of one is predicted from the end token before it. ``dataset[i]`` has
    the labels ``answer_ids`` (T,), tokens ``i * length`` up to ``(i + 1) * length`` of the stream, and in
    ``question_ids`` (1,) the token before them. T is ``length`` in all examples but the last.
    """

    def __init__(self, folder: Path, length: int, end: int, *, check: bool = True) -> None:
        super().__init__(folder, check=check)
        self.length, self.end = length, end
        longest = min(length, len(self.tokens))
        self.about |= {"longest_question": 1, "longest_answer": longest, "longest_example": longest + 1}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), check=False), (self.folder, self.length, self.end)

    def __len__(self) -> int:
        return -(-len(self.tokens) // self.length)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        start, stop = self._bounds(index)
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
        return np.ascontiguousarray(self.offsets[::2])


def _crc32(path: Path) -> int:
    with open(path, "rb") as stream:
        return zlib.crc32(map_open(stream))


class _GrowingArray:
    """A ``.npy`` file that is appended to; numpy pads the header, so that it can be rewritten with another length."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), 0
        self.stream: IO[bytes] = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._write_header()

    def _write_header(self) -> None:
        self.stream.seek(0)
        header: Any = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.stream, header)

    def append(self, values: np.ndarray) -> None:
        self.stream.write(values.astype(self.dtype, copy=False).tobytes())
        self.length += len(values)

    def close(self) -> int:
        """Complete the file; returns its CRC-32."""
        self._write_header()
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        return _crc32(self.path)


@dataclass
class EncodedBlock:
    """The token ids of questions and answers in turn, the length of each, and, if asked for, a value for each token.

    ``truncated`` questions lost their beginning, ``unknown`` examples have an unknown token.
    """

    tokens: np.ndarray
    sizes: np.ndarray
    values: np.ndarray | None = None
    truncated: int = 0
    unknown: int = 0


class EncodedWriter:
    """Appends encoded blocks to a folder, which counts as whole after ``finish``."""

    def __init__(self, folder: Path, dtype: str, *, with_values: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.rows = folder, 0
        dtypes = {"tokens.npy": dtype, "offsets.npy": "<i8", **({"values.npy": "<f8"} if with_values else {})}
        self.arrays = {name: _GrowingArray(folder / name, dtype) for name, dtype in dtypes.items()}
        self.arrays["offsets.npy"].append(np.zeros(1, dtype=np.int64))
        self.about = {"truncated": 0, "unknown": 0, "longest_question": 0, "longest_answer": 0, "longest_example": 0}

    def append(self, block: EncodedBlock) -> None:
        self.arrays["offsets.npy"].append(self.arrays["tokens.npy"].length + np.cumsum(block.sizes))
        self.arrays["tokens.npy"].append(block.tokens)
        if block.values is not None:
            self.arrays["values.npy"].append(block.values)
        self.rows += len(block.sizes) // 2
        self.about["truncated"] += block.truncated
        self.about["unknown"] += block.unknown
        questions, answers = block.sizes[::2], block.sizes[1::2]
        for part, sizes in (("question", questions), ("answer", answers), ("example", questions + answers)):
            self.about[f"longest_{part}"] = max(self.about[f"longest_{part}"], int(sizes.max(initial=0)))

    def finish(self) -> None:
        """Complete the arrays, then write ``about.json``."""
        about = {**self.about, "arrays": {name: array.close() for name, array in self.arrays.items()}}
        write_atomically(self.folder / ABOUT, json.dumps({**about, "sum": zlib.crc32(json.dumps(about).encode())}))
