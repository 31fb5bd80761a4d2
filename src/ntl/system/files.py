"""Atomic writing of files, their digests, and the removal of what killed processes leave behind."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ntl.system.errors import one_line_errors

# Far longer than the few minutes between two writes of a process that is working in a folder.
UNUSED_SECONDS = 24 * 3600.0


def sha256_of(path: Path) -> str:
    """Return the hexadecimal sha256 digest of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Say which names have another sha256 now; "" if none has."""
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(f"{name} had sha256 {before.get(name)} and has {now.get(name)}" for name in changed)


def data_roots(data_dir: Path) -> list[Path]:
    """Folders to read from: the data folder, then NTL_DATA_DIR. Only the first is ever written to."""
    shared = os.environ.get("NTL_DATA_DIR")
    roots = [data_dir] if not shared else [data_dir, Path(shared)]
    return list(dict.fromkeys(root.absolute() for root in roots))


def existing(folder: Path) -> Path:
    """Return the folder, or the closest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def sync(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for atomic binary writing.

    The file replaces an older one of its name only if the block ends without an error, and only after its content is on
    the disk. Until then it is a hidden file in the same folder, ``.NAME.*.part`` (see ``remove_parts``). OSErrors are
    not changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)  # mkstemp makes the file unreadable for other users
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Write a text file (UTF-8) with ``atomic_writer``."""
    with atomic_writer(path) as stream:
        stream.write(text.encode())


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, unless it has this text already. Raises UserError if it cannot be written."""
    with one_line_errors("write", path):
        if not path.exists() or path.read_bytes() != text.encode():
            write_atomically(path, text)


def remove_parts(folder: Path) -> None:
    """Remove the unfinished files of killed processes from a folder in which no other process is writing."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def sweep(parent: Path, pattern: str, unused_seconds: float = UNUSED_SECONDS) -> None:
    """Remove the folders in ``parent`` that match the pattern and have not been written to for ``unused_seconds``."""
    for folder in parent.glob(pattern):
        # Another process may be removing the same folder.
        with suppress(FileNotFoundError):
            written = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
            if folder.is_dir() and time.time() - written >= unused_seconds:
                shutil.rmtree(folder, ignore_errors=True)
