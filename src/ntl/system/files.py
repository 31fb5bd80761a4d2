"""Files that appear whole or not at all, their digests, and what killed processes leave behind."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ntl.system.errors import one_line_errors

# A process that works in a folder writes there every few minutes at least.
UNUSED_SECONDS = 24 * 3600.0


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Return when the disk has what was written to a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A binary handle; the file appears under its name, in place of an older one, only when the block ends well.

    It is on the disk before. Until then it is a hidden neighbour, ``.NAME.*.part`` (``remove_parts``). OSError as it
    comes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)  # mkstemp's own mode shuts out everyone else
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """The file with this text (UTF-8), by ``atomic_writer``."""
    with atomic_writer(path) as stream:
        stream.write(text.encode())


def write_text(path: Path, text: str) -> None:
    """Write atomically, and not at all where the file has this text already. UserError: it cannot be written."""
    with one_line_errors("write", path):
        if not path.exists() or path.read_bytes() != text.encode():
            write_atomically(path, text)


def remove_parts(folder: Path) -> None:
    """Remove what killed processes had begun to write in a folder that nobody else writes to."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def sweep(parent: Path, pattern: str, unused_seconds: float = UNUSED_SECONDS) -> None:
    """Remove the folders of ``parent`` that match and in which nothing was written for so long."""
    for folder in parent.glob(pattern):
        # Another process may be at the same.
        with suppress(FileNotFoundError):
            written = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
            if folder.is_dir() and time.time() - written >= unused_seconds:
                shutil.rmtree(folder, ignore_errors=True)
