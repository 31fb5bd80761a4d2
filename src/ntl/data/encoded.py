"""Token ids on disk, and a writer that can be stopped and resumed.

A folder holds ``tokens.npy`` (all ids, one after the other), ``offsets.npy`` (2 N + 1 int64: where each question and
each answer begins), ``about.json`` and, where tokens have values, ``values.npy`` with one float64 for each. Against
Arrow columns of lists, a random batch of mathematics is read in a third of the time, as arrays in a twelfth.

``about.json`` has the CRC-32 of every 64 KiB of the arrays. A block is compared with it when it is first read, so
that a run on millions of pairs starts at once; small arrays are compared whole when they are opened.
"""

import json
import os
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ntl.data.encode_worker import COUNTERS, EncodedBlock, combine
from ntl.system.errors import UserError
from ntl.system.files import write_atomically

if TYPE_CHECKING:
    from torch.utils.data import Subset

ABOUT = "about.json"
JOURNAL = "journal.json"
# A kill loses the blocks encoded since the journal was last written.
JOURNAL_SECONDS = 2.0
# Bytes per checksum: a random batch reads one block for each example, and 26 million pairs have 40,000 blocks.
BLOCK = 1 << 16
# Up to this size, in bytes, everything is compared at once, so that damage shows before a run starts.
AT_ONCE = 1 << 22
# Numbers only: numpy stores an array of Python objects as pickles, which can run code.
DTYPES = ("<u2", "<i4", "<i8", "<f8")


class Damaged(UserError):
    """Token ids on disk that are not those that were written."""


class _Array:
    """A ``.npy`` file, mapped, whose blocks are compared with their checksums before they are first read."""

    def __init__(self, path: Path, entry: dict[str, Any]) -> None:
        self.path = path
        size, header = entry["header"]
        with open(path, "rb") as stream:
            if zlib.crc32(stream.read(size)) != header or entry["dtype"] not in DTYPES:
                raise ValueError(f"{path.name} is not the array that was written")
        # A plain array: slices of numpy's memmap class are slow. The header is known and need not be parsed.
        mapped = np.memmap(path, entry["dtype"], mode="r", offset=size, shape=(entry["length"],))
        self.values = mapped.view(np.ndarray)
        self.sums = np.frombuffer(bytes.fromhex(entry["sums"]), "<u4").tolist()
        self.bytes: Any = self.values.view(np.uint8)
        self.each = BLOCK // self.values.itemsize
        self.unread = bytearray(b"\1") * len(self.sums)
        self.left = len(self.sums)
        if self.left != -(-self.values.nbytes // BLOCK):
            raise ValueError(f"{path.name} is not the array that was written")

    def check(self, start: int, stop: int) -> None:
        """``Damaged`` unless elements ``start`` to ``stop`` are those that were written."""
        if self.left and start < stop:
            self.check_blocks(range(start // self.each, (stop - 1) // self.each + 1))

    def check_blocks(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self.unread[block]:
                if zlib.crc32(self.bytes[block * BLOCK : (block + 1) * BLOCK]) != self.sums[block]:
                    raise self._damaged(block)
                self.unread[block] = 0
                self.left -= 1

    def _damaged(self, block: int) -> Damaged:
        folder, remedy = self.path.parent, "the same command makes it again"
        try:
            # Without this file the folder counts as unfinished.
            (folder / ABOUT).unlink(missing_ok=True)
        except OSError:
            remedy = "remove this folder, and it is made again"
        return Damaged(
            f"{folder}: damaged ({self.path.name}: block {block} of {len(self.sums)} has another checksum); {remedy}."
        )


class EncodedDataset:
    """Token ids of questions and answers, read from disk on demand.

    ``dataset[i]`` is ``{"question_ids": (S,), "answer_ids": (T,)}``, both uint16 where the vocabulary allows and int32
    otherwise, the answer with its end token; where tokens have values (``ntl.data.encode_worker.EncodedBlock``), also
    ``question_values`` (S,) and ``answer_values`` (T,) float64. ``about`` counts truncated questions and examples with
    unknown tokens, and has the longest question, answer and example in tokens. ``Damaged`` for what is not as written,
    when it is opened or when it is read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            about = _without_checksum((folder / ABOUT).read_text(encoding="utf-8"))
            arrays = {name: _Array(folder / name, entry) for name, entry in about.pop("arrays").items()}
            self._tokens, self._offsets = arrays["tokens.npy"], arrays["offsets.npy"]
            self._values = arrays.get("values.npy")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
            raise Damaged(f"{folder}: damaged ({error}); remove this folder, and it is made again.") from error
        self.about: dict[str, int] = about
        self.tokens, self.offsets = self._tokens.values, self._offsets.values
        self.values = self._values.values if self._values else None
        if sum(array.values.nbytes for array in arrays.values()) <= AT_ONCE:
            for array in arrays.values():
                array.check(0, len(array.values))

    def __reduce__(self) -> tuple[Any, ...]:
        # A data worker that is not forked opens the files itself.
        return EncodedDataset, (self.folder,)

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // 2

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        self._offsets.check(2 * index, 2 * index + 3)
        start, middle, end = self.offsets[2 * index : 2 * index + 3].tolist()
        self._tokens.check(start, end)
        example = {"question_ids": self.tokens[start:middle], "answer_ids": self.tokens[middle:end]}
        if self._values is not None:
            self._values.check(start, end)
            values = self._values.values
            example |= {"question_values": values[start:middle], "answer_values": values[middle:end]}
        return example

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        return [self[index] for index in indices]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each example (int64), question and answer together."""
        if self._offsets.left:
            ends = np.concatenate([2 * indices, 2 * indices + 2])
            self._offsets.check_blocks(np.unique(ends // self._offsets.each).tolist())
        return self.offsets[2 * indices + 2] - self.offsets[2 * indices]

    def first(self, rows: int) -> "Subset[dict[str, np.ndarray]]":
        """The first ``rows`` examples, or all when ``rows`` is 0."""
        # Imported here: the rest of this file needs no torch.
        from torch.utils.data import Subset

        dataset: Any = self
        return Subset(dataset, range(min(rows, len(self)) if rows else len(self)))


def _without_checksum(text: str) -> dict[str, Any]:
    """What ``_write_description`` wrote; ValueError for anything else, such as a file of an older version."""
    content = json.loads(text)
    if not isinstance(content, dict) or content.pop("sum", None) != zlib.crc32(json.dumps(content).encode()):
        raise ValueError("its description has no checksum, or another")
    return content


class _GrowingArray:
    """A ``.npy`` file that is appended to; numpy pads the header, so that it can be rewritten with another length."""

    def __init__(self, path: Path, dtype: str, length: int) -> None:
        self.dtype = np.dtype(dtype)
        self.length = length
        self.sums: list[int] = []
        self.room = 0  # bytes that the last block has left
        self.header: list[int] = []  # its size and its CRC-32, once it is final
        self.stream: IO[bytes] = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - closed by close()
        self._write_header()
        # What was written after the journal is not known to be whole.
        self.stream.truncate(self.stream.tell() + length * self.dtype.itemsize)
        while block := self.stream.read(BLOCK):
            self._add(block)

    def _write_header(self) -> None:
        self.stream.seek(0)
        header: Any = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.stream, header)

    def append(self, values: np.ndarray) -> None:
        data = values.astype(self.dtype, copy=False).tobytes()
        self.stream.write(data)
        self._add(data)
        self.length += len(values)

    def _add(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if not self.room:
                self.sums.append(0)
                self.room = BLOCK
            piece, rest = rest[: self.room], rest[self.room :]
            self.sums[-1] = zlib.crc32(piece, self.sums[-1])
            self.room -= len(piece)

    @property
    def entry(self) -> dict[str, Any]:
        sums = np.array(self.sums, "<u4").tobytes().hex()
        return {"dtype": self.dtype.str, "length": self.length, "header": self.header, "sums": sums}

    def sync(self) -> None:
        self.stream.flush()
        os.fsync(self.stream.fileno())

    def close(self) -> None:
        self._write_header()
        size = self.stream.tell()
        self.stream.seek(0)
        self.header = [size, zlib.crc32(self.stream.read(size))]
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
        self.with_values = with_values
        # Whether there was a journal that does not agree with the files.
        self.damaged = False
        if not self._resume():
            self.damaged = (folder / JOURNAL).exists()
            self._open_arrays({"position": 0, "rows": 0, "counters": [0] * len(COUNTERS)}, {})
            self.offsets.append(np.zeros(1, dtype=np.int64))
        self.journaled = time.monotonic()

    def _resume(self) -> bool:
        try:
            entry = _without_checksum((self.folder / JOURNAL).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        self._open_arrays(entry, {name: array["length"] for name, array in entry["arrays"].items()})
        whole = {name: array.entry for name, array in self.arrays.items()} == entry["arrays"]
        if not whole:
            for array in self.arrays.values():
                array.close()
        return whole

    def _open_arrays(self, entry: dict[str, Any], lengths: dict[str, int]) -> None:
        self.position: int = entry["position"]
        self.rows: int = entry["rows"]
        self.counters: tuple[int, ...] = tuple(entry["counters"])
        dtypes = {"tokens.npy": self.dtype, "offsets.npy": "<i8", **({"values.npy": "<f8"} if self.with_values else {})}
        self.arrays = {
            name: _GrowingArray(self.folder / name, dtype, lengths.get(name, 0)) for name, dtype in dtypes.items()
        }
        self.tokens, self.offsets = self.arrays["tokens.npy"], self.arrays["offsets.npy"]
        self.values = self.arrays.get("values.npy")

    def append(self, encoded: EncodedBlock, position: int) -> None:
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
        """Make everything appended so far safe from a kill."""
        # The arrays first: the journal must never list what is not on disk yet.
        for array in self.arrays.values():
            array.sync()
        done = {"position": self.position, "rows": self.rows, "counters": list(self.counters)}
        self._write_description(JOURNAL, done)
        self.journaled = time.monotonic()

    def finish(self) -> None:
        """Complete the folder: the arrays' headers, then ``about.json``, which marks it as whole."""
        for array in self.arrays.values():
            array.close()
        self._write_description(ABOUT, dict(zip(COUNTERS, self.counters, strict=True)))
        (self.folder / JOURNAL).unlink(missing_ok=True)

    def _write_description(self, name: str, content: dict[str, Any]) -> None:
        arrays = {name: array.entry for name, array in self.arrays.items()}
        content = {**content, "arrays": arrays}
        text = json.dumps({**content, "sum": zlib.crc32(json.dumps(content).encode())})
        write_atomically(self.folder / name, text)
