"""Token ids as they lie on disk, and the writer that can be stopped and go on.

A folder holds ``tokens.npy`` (all ids, one after the other), ``offsets.npy`` (2 N + 1 int64: where each question and
each answer begins), ``about.json`` and, where tokens have values, ``values.npy`` with one float64 for each. Measured on
mathematics: as large as Arrow columns of lists of the same ids (104 bytes a pair to 96), and a batch is read at random
in a third of the time, in a twelfth when arrays are wanted.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ntl.config import UserError
from ntl.data.encode_worker import COUNTERS, Encoded, combine

ABOUT = "about.json"
JOURNAL = "journal.json"
# What a kill loses at most: the blocks encoded since the last entry in the journal.
JOURNAL_SECONDS = 2.0


class EncodedDataset:
    """Token ids of questions and answers, read from disk on demand.

    ``dataset[i]`` is ``{"question_ids": (S,), "answer_ids": (T,)}``, both uint16 where the vocabulary allows and int32
    otherwise, the answer with its end token; where tokens have values (``ntl.data.encode_worker.Encoded``), also
    ``question_values`` (S,) and ``answer_values`` (T,) float64. ``about`` counts truncated questions and examples with
    unknown tokens, and has the longest question, answer and example in tokens.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.tokens, self.offsets = _map(folder / "tokens.npy"), _map(folder / "offsets.npy")
            values = folder / "values.npy"
            self.values = _map(values) if values.is_file() else None
            self.about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise UserError(f"{folder}: damaged ({error}); remove this folder, and it is made again.") from error

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // 2

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start, middle, end = self.offsets[2 * index : 2 * index + 3]
        example = {"question_ids": self.tokens[start:middle], "answer_ids": self.tokens[middle:end]}
        if self.values is not None:
            example |= {"question_values": self.values[start:middle], "answer_values": self.values[middle:end]}
        return example

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        return [self[index] for index in indices]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each example (int64), question and answer together."""
        return self.offsets[2 * indices + 2] - self.offsets[2 * indices]

    def first(self, rows: int) -> "Head":
        """The first ``rows`` examples, or all when ``rows`` is 0."""
        return Head(self, min(rows, len(self)) if rows else len(self))


def _map(path: Path) -> np.ndarray:
    # Not np.load, which has other formats, too. A file of Python objects, which are pickles, is a ValueError.
    # A view as a plain array: the subclass for memory maps makes each slice slow.
    return np.lib.format.open_memmap(path, mode="r").view(np.ndarray)


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


class _GrowingArray:
    """A ``.npy`` file that is appended to; numpy leaves room in the header for the length to grow."""

    def __init__(self, path: Path, dtype: str, length: int) -> None:
        self.dtype = np.dtype(dtype)
        self.length = length
        self.stream: IO[bytes] = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - closed by close()
        self._write_header()
        # What was written after the journal's last entry is not known to be whole.
        self.stream.truncate(self.stream.tell() + length * self.dtype.itemsize)
        self.stream.seek(0, os.SEEK_END)

    def _write_header(self) -> None:
        self.stream.seek(0)
        header: Any = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.stream, header)

    def append(self, values: np.ndarray) -> None:
        self.stream.write(values.astype(self.dtype, copy=False).tobytes())
        self.length += len(values)

    def sync(self) -> None:
        self.stream.flush()
        os.fsync(self.stream.fileno())

    def close(self) -> None:
        self._write_header()
        self.sync()
        self.stream.close()


class EncodedWriter:
    """Appends encoded blocks to a folder; opened again after a kill, it goes on behind the last journal entry.

    ``position`` is the source position (of the caller's own counting) up to which everything is stored.
    """

    def __init__(self, folder: Path, dtype: str, *, with_values: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.dtype = dtype
        entry = self._read_journal()
        self.position: int = entry["position"]
        self.rows: int = entry["rows"]
        self.counters: tuple[int, ...] = tuple(entry["counters"])
        self.tokens = _GrowingArray(folder / "tokens.npy", dtype, entry["tokens"])
        self.offsets = _GrowingArray(folder / "offsets.npy", "<i8", 2 * self.rows + 1 if self.rows else 0)
        self.values = _GrowingArray(folder / "values.npy", "<f8", entry["tokens"]) if with_values else None
        if not self.rows:
            self.offsets.append(np.zeros(1, dtype=np.int64))
        self.journaled = time.monotonic()

    def _read_journal(self) -> dict[str, Any]:
        path = self.folder / JOURNAL
        fresh = {"position": 0, "rows": 0, "tokens": 0, "counters": [0] * len(COUNTERS)}
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else fresh

    def append(self, encoded: Encoded, position: int) -> None:
        """Store a block that ends at ``position`` of the source."""
        self.offsets.append(self.tokens.length + np.cumsum(encoded.sizes))
        self.tokens.append(encoded.tokens)
        if self.values is not None and encoded.values is not None:
            self.values.append(encoded.values)
        self.rows += len(encoded.sizes) // 2
        self.position = position
        self.counters = combine(self.counters, encoded.counters)
        if time.monotonic() - self.journaled >= JOURNAL_SECONDS:
            self.journal()

    def journal(self) -> None:
        """Vouch for everything appended so far."""
        # The arrays first: the journal must never promise what a power cut could still take away.
        for array in self._arrays():
            array.sync()
        entry = {"position": self.position, "rows": self.rows, "tokens": self.tokens.length, "counters": self.counters}
        self._replace(JOURNAL, entry)
        self.journaled = time.monotonic()

    def finish(self) -> None:
        """Complete the folder: headers, then ``about.json``, whose presence says that it is whole."""
        for array in self._arrays():
            array.close()
        self._replace(ABOUT, dict(zip(COUNTERS, self.counters, strict=True)))
        (self.folder / JOURNAL).unlink(missing_ok=True)

    def _arrays(self) -> list[_GrowingArray]:
        return [self.tokens, self.offsets, *([] if self.values is None else [self.values])]

    def _replace(self, name: str, content: dict[str, Any]) -> None:
        part = self.folder / f"{name}.part"
        with open(part, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(content))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, self.folder / name)
