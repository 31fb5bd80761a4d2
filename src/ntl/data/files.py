"""Readers of text files, plain and packed, whose errors name the file and the line."""

import gzip
import json
import mmap
import os
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from ntl.system.errors import UserError, one_line_errors

Pair = tuple[str, str]
Buffer = bytes | mmap.mmap
BLOCK = 1 << 20
# The most bytes that a packed file may unpack to: this, or RATIO times its size. Text packs to a tenth, a gzip bomb to
# a thousandth.
UNPACKED = 1 << 28
RATIO = 100
DAMAGE = (OSError, EOFError, zlib.error, tarfile.TarError, ValueError, OverflowError, IndexError)


class Unpacked:
    """The content of a ``.gz`` as a stream; UserError where it unpacks to far more than text can.

    The gzip's checksum has been compared when the end is reached.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.most = self.left = max(UNPACKED, RATIO * self.size)
        self.stream = gzip.GzipFile(path)

    def read1(self, size: int) -> bytes:
        block = self.stream.read1(size)
        self.left -= len(block)
        if self.left < 0:
            raise UserError(
                f"{self.path}: unpacks to more than {self.most >> 20:,} MiB from {self.size:,} bytes, which no text "
                "does; fetch it again."
            )
        return block

    def __enter__(self) -> "Unpacked":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    # What tarfile calls.
    read = read1


def read_file(path: Path) -> bytes:
    """The bytes of a file, unpacked if its name ends in ``.gz``. UserError names the line that is damaged."""
    try:
        with Unpacked(path) if path.suffix.lower() == ".gz" else open(path, "rb") as stream:
            return b"".join(_blocks(stream, str(path)))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def map_file(path: Path) -> Buffer:
    with one_line_errors("read", path), open(path, "rb") as stream:
        return map_open(stream)


def map_unpacked(path: Path, scratch: Path) -> Buffer:
    """The bytes of a ``.gz``, unpacked block by block and memory-mapped from a nameless file in ``scratch``.

    The file's disk space is freed with the buffer. UserError names the line that is damaged.
    """
    with one_line_errors(f"unpack {path} into", scratch), tempfile.TemporaryFile(dir=scratch) as unpacked:
        with Unpacked(path) as stream:
            for block in _blocks(stream, str(path)):
                unpacked.write(block)
        unpacked.flush()
        return map_open(unpacked)


def map_open(stream: IO[bytes]) -> Buffer:
    # An empty file cannot be mapped.
    return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(stream.fileno()).st_size else b""


def iterate_members(archive: Path, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Members of a ``.tar.gz`` by their path below its top folder, in its order; those not in it are left out.

    The archive's checksum is compared after the last one: until then no member is known to be whole.
    """
    last = "the start"
    try:
        # As a stream, tarfile reads the archive once, and no more of it than Unpacked lets through.
        with Unpacked(archive) as stream, tarfile.open(fileobj=cast(Any, stream), mode="r|", bufsize=BLOCK) as tar:
            for member in tar:
                last = member.name
                below_top = member.name.removeprefix("./").partition("/")[2]
                content = tar.extractfile(member) if below_top in wanted and member.isfile() else None
                if content is not None:
                    yield below_top, b"".join(_blocks(content, f"{archive}/{member.name}"))
            while stream.read(BLOCK):
                pass
    except DAMAGE as error:
        raise UserError(f"{archive}: truncated or damaged after {last} ({error}); fetch it again.") from error


def _blocks(stream: Any, label: str) -> Iterator[bytes]:
    line = 1
    while True:
        try:
            # Unlike read, read1 returns what was unpacked before the damage, so that the line can be named.
            block = stream.read1(1 << 16)
        except DAMAGE as error:
            raise UserError(f"{label}:{line}: truncated or damaged here ({error}); fetch the file again.") from error
        if not block:
            return
        line += block.count(b"\n")
        yield block


def decode(data: bytes, label: str) -> str:
    """UTF-8 text; UserError with the line of the first bad byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise UserError(f"{label}:{line}: byte 0x{data[error.start]:02x} is not UTF-8.") from error


class Pairs:
    r"""Pairs of a question line and an answer line, over the bytes of a file; each is decoded when it is read.

    Only ``\n`` ends a line; at the end of the file it is optional. Question ``i`` stands in line ``2 i + 1``. UserError
    for an empty file or line, an odd count, or bytes that are not UTF-8.
    """

    def __init__(self, data: Buffer, label: str) -> None:
        self._data = data
        self._bounds = line_bounds(data, label)
        lines = len(self._bounds) - 1
        if not lines:
            raise UserError(f"{label}:1: the file is empty.")
        if (empty := np.flatnonzero(np.diff(self._bounds) == 1)).size:
            raise UserError(f"{label}:{empty[0] + 1}: empty {'answer' if empty[0] % 2 else 'question'}.")
        if lines % 2:
            raise UserError(f"{label}:{lines}: question without an answer; the file is truncated or damaged.")

    def __len__(self) -> int:
        return (len(self._bounds) - 1) // 2

    def __iter__(self) -> Iterator[Pair]:
        for start in range(0, len(self), 4096):
            yield from self.take(np.arange(start, min(start + 4096, len(self))))

    def take(self, indices: np.ndarray) -> Iterator[Pair]:
        """The pairs at these indices, in their order."""
        data = self._data
        bounds = [self._bounds[2 * indices + line].tolist() for line in range(3)]
        for start, middle, end in zip(*bounds, strict=True):
            yield data[start : middle - 1].decode(), data[middle : end - 1].decode()


def line_blocks(data: Buffer) -> Iterator[bytes]:
    """Blocks of whole lines, of a megabyte or more: a mask of all bytes at once would be as large as the file."""
    start = 0
    while start < len(data):
        stop = data.find(b"\n", start + BLOCK) + 1 or len(data)
        yield data[start:stop]
        start = stop


def line_bounds(data: Buffer, label: str) -> np.ndarray:
    """Where each line begins, and the end. UserError for bytes that are not UTF-8."""
    size, start, bounds = len(data), 0, [np.zeros(1, dtype=np.int64)]
    for block in line_blocks(data):
        if not block.isascii():
            try:
                block.decode("utf-8")
            except UnicodeDecodeError:
                decode(bytes(data[: start + len(block)]), label)
        bounds.append(np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + (start + 1))
        start += len(block)
    if size and data[size - 1 :] != b"\n":
        bounds.append(np.array([size + 1]))
    return np.concatenate(bounds).astype(np.uint32 if size < 2**32 - 1 else np.int64)


def parse_jsonl(data: bytes, label: str, fields: tuple[str, ...]) -> list[tuple[int, dict[str, Any]]]:
    """Line numbers from 1 and objects, blank lines skipped; ``label`` is the file in an error's line.

    Each of ``fields`` must be a string; other keys are kept as they are.
    """
    rows = []
    for number, line in enumerate(decode(data, label).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{label}:{number}: not a JSON object ({error}).") from error
        if not isinstance(row, dict):
            raise UserError(f"{label}:{number}: a JSON {type(row).__name__}, not an object.")
        for field in fields:
            text_of(row, field, f"{label}:{number}")
        rows.append((number, row))
    if not rows:
        raise UserError(f"{label}:1: the file is empty.")
    return rows


def text_of(row: dict[str, Any], field: str, label: str) -> str:
    """A field that is a string, and one that UTF-8 can hold."""
    value = row.get(field)
    if not isinstance(value, str):
        raise UserError(f"{label}: {'no' if value is None else 'not a string:'} {field!r}.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f"{label}: {field!r} holds half of a surrogate pair.") from error
    return value
