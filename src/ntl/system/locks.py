"""Locks between processes, which the system releases when their owner ends, even if it is killed."""

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from ntl.system.errors import one_line_errors

# The errors of file systems without locks, as some network, cluster and user-space file systems are.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Taken(Exception):
    """Another process has the lock."""


@contextmanager
def lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold the lock of a file, which is created if needed. Yields False if the file system has no locks.

    If another process holds the lock, ``waiting`` is called before waiting for it; without ``waiting``, ``Taken`` is
    raised. Other OSErrors are not changed.
    """
    # A soft lock, which is a file that marks itself as taken, would outlive an owner that was killed.
    file_lock = FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        try:
            file_lock.acquire(timeout=0)
        except Timeout:
            if waiting is None:
                raise Taken(path) from None
            waiting()
            file_lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        yield file_lock.is_locked
    finally:
        file_lock.release()


@contextmanager
def wait_for_lock(path: Path, log: Callable[[str], None]) -> Iterator[bool]:
    """Hold ``lock``, logging a line if it has to wait. Raises UserError if the file cannot be written."""
    with ExitStack() as stack:
        with one_line_errors("write", path):
            held = stack.enter_context(lock(path, partial(log, f"waiting for another process that holds {path}")))
        yield held


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file now; True if this is unknown, False if there are no locks."""
    try:
        with path.open() as file:
            return not lock_descriptor(file.fileno(), blocking=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno not in _NO_LOCKS


def without_locks(folder: Path, what: str, setting: str) -> str:
    """Return the warning about a file system without locks; ``what`` is started in the folder set by ``setting=``."""
    return (
        f"{folder}: this file system has no locks, so that two processes at one {what} are not kept apart; start each "
        f"{what} once, or choose another place by {setting}=."
    )
