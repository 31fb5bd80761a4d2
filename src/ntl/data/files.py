"""Text files, read whole, plain or packed, or line by line over a memory map; and folders that are made once."""

import gzip
import mmap
import os
import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np

from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import UNUSED_SECONDS, sweep, wait_for_lock

Made = TypeVar("Made")
Pair = tuple[str, str]
Buffer = bytes | mmap.mmap
BLOCK = 1 << 20
# The most bytes that a packed file may unpack to: this, or RATIO times its size. Text packs to a tenth, a gzip bomb to
# a thousandth.
UNPACKED, RATIO = 1 << 28, 100


def read_file(path: Path) -> bytes:
    """The bytes of a file, unpacked if its name ends in ``.gz``.

    UserError: it cannot be read, is damaged, or unpacks to far more than text can.
    """
    with one_line_errors("read", path):
        if path.suffix.lower() != ".gz":
            return path.read_bytes()
        most = max(UNPACKED, RATIO * path.stat().st_size)
    try:
        with gzip.open(path) as stream:
            content = stream.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: truncated or damaged ({error}); fetch it again.") from error
    if len(content) > most:
        raise UserError(f"{path}: unpacks to more than {most >> 20:,} MiB, which no text does; fetch it again.")
    return content


def read_text(path: Path) -> str:
    """A UTF-8 file, plain or ``.gz``, without a byte order mark. UserError with the line of the first bad byte."""
    data = read_file(path)
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        byte = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise UserError(f"{path}:{line}: {byte}; save the file as that.") from error


def map_file(path: Path) -> Buffer:
    with one_line_errors("read", path), open(path, "rb") as stream:
        # An empty file cannot be mapped.
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(stream.fileno()).st_size else b""


class Lines:
    r"""The lines of a file, without their ends, over its bytes. Only ``\n`` ends one; that of the last is optional."""

    def __init__(self, data: Buffer) -> None:
        self.data = data

    @cached_property
    def _bounds(self) -> np.ndarray:
        # Where each line begins, and the end. A mask of all bytes at once would be as large as the file.
        size, bounds = len(self.data), [np.zeros(1, np.int64)]
        for start in range(0, size, BLOCK):
            block = np.frombuffer(self.data, np.uint8, min(BLOCK, size - start), start)
            bounds.append(np.flatnonzero(block == ord("\n")) + (start + 1))
        if size and self.data[size - 1] != ord("\n"):
            bounds.append(np.array([size + 1]))
        return np.concatenate(bounds).astype(np.uint32 if size < 2**32 - 1 else np.int64)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> bytes:
        position = range(len(self))[index]
        return self.data[int(self._bounds[position]) : int(self._bounds[position + 1]) - 1]


def make_once(
    target: Path,
    find: Callable[[], Made | None],
    write: Callable[[Path], None],
    log: Callable[[str], None],
    action: str,
) -> Made:
    """What ``find`` finds; if that is nothing, after ``write`` filled a new folder that became ``target``.

    The folder takes its name when it is whole, and of two processes the second waits. UserError, "cannot ``action``",
    for a full disk.
    """
    if (found := find()) is not None:
        return found
    with one_line_errors(action, target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(target.parent / f".{target.name}.lock", log) as held:
            if (found := find()) is None:  # no other process has made it meanwhile
                # Without a lock the folder of another process at work may be among them.
                sweep(target.parent, f".{target.name}.part-*", 0 if held else UNUSED_SECONDS)
                with TemporaryDirectory(prefix=f".{target.name}.part-", dir=target.parent) as part:
                    new = Path(part) / "new"
                    new.mkdir()
                    write(new)
                    if target.is_dir():  # damaged
                        os.replace(target, Path(part) / "old")
                    os.replace(new, target)
                found = find()
    assert found is not None
    return found
