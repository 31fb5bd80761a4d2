"""Atomic writing of files and folders, their digests, locks between processes, and what killed ones leave behind."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from ntl.system.errors import one_line_errors
from ntl.system.messages import logger

Made = TypeVar("Made")
# The errors of file systems without locks, as some network, cluster and user-space file systems are.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def regular(path: Path) -> Path:
    """Return the path of a file or folder. OSError for a pipe, socket or device: to read one may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "a pipe, socket or device, where a file is needed", str(path))
    return path


def sha256_of(path: Path) -> str:
    """Return the hexadecimal sha256 digest of a file."""
    with open(regular(path), "rb") as stream:
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


def sync(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for atomic binary writing: it replaces an older one of its name once its content is on the disk.

    Until then, and if the block ends with an error, it is a hidden file, ``.NAME.*.part`` (see ``remove_parts``).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", suffix=".part", dir=path.parent, delete=False) as stream:
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(stream.name, 0o644)  # it is unreadable for other users
            os.replace(stream.name, path)
        except BaseException:
            Path(stream.name).unlink(missing_ok=True)
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


# ---- locks, which the system releases when their owner ends, even if it is killed


@contextmanager
def lock(path: Path, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of a file, which is created if needed. Yields False if the file system has no locks.

    If another process holds the lock, filelock's ``Timeout`` is raised; with ``wait``, this warns and waits for it.
    Other OSErrors are not changed.
    """
    from filelock import FileLock, Timeout  # here: the losses do without it

    # A soft lock, which is a file that marks itself as taken, would outlive an owner that was killed.
    file_lock = FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        try:
            file_lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                raise
            logger.warning(f"waiting for another process that holds {path}")
            file_lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        yield file_lock.is_locked
    finally:
        file_lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file now; True if this is unknown, False if there are no locks."""
    from filelock import lock_descriptor

    try:
        with path.open() as file:
            return not lock_descriptor(file.fileno(), blocking=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno not in _NO_LOCKS


@contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """Yield a new folder beside ``target`` to make it in, one process at a time; folders of killed processes go.

    Where the file system has no locks, they stay: their processes may be at work.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with lock(target.parent / f".{target.name}.lock", wait=True) as held:
        for left in target.parent.glob(f".{target.name}.part-*") if held else ():
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.part-", dir=target.parent) as part:
            yield Path(part)


def make_once(target: Path, find: Callable[[], Made | None], write: Callable[[Path], None], action: str) -> Made:
    """What ``find`` finds; if that is nothing, after ``write`` filled a new folder that became ``target``.

    The folder takes its name when it is whole, and of two processes the second waits. UserError, "cannot ``action``",
    for a full disk.
    """
    if (made := find()) is not None:
        return made
    with one_line_errors(action, target.parent), scratch(target) as part:
        if (made := find()) is None:  # no other process has made it meanwhile
            new = part / "new"
            new.mkdir()
            write(new)
            if target.is_dir():  # damaged
                os.replace(target, part / "old")
            os.replace(new, target)
            made = find()
    assert made is not None
    return made
