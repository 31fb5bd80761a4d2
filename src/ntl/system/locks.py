"""Locks between processes, which the system releases when their owner ends, however it ends."""

import errno
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from ntl.system.errors import one_line_errors

# Some network, cluster and user-space file systems have none, or are mounted without them.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Taken(Exception):
    """Another process has the lock."""


@contextmanager
def lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold the lock of a file, which is made where it is not there; False where the file system has no locks.

    Where another process has it, ``waiting`` is called and then waited; without ``waiting`` that raises ``Taken``.
    OSError for whatever else goes wrong.
    """
    # A soft lock, a file that marks itself taken, would outlive an owner that was killed.
    held = FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        _acquire(held, waiting)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        yield held.is_locked
    finally:
        held.release()


@contextmanager
def wait_for_lock(path: Path, log: Callable[[str], None]) -> Iterator[bool]:
    """``lock``, with a line while another process has it. UserError where the file cannot be written."""
    with ExitStack() as stack:
        with one_line_errors("write", path):
            told = partial(log, f"waiting for another process that holds {path}")
            held = stack.enter_context(lock(path, told))
        yield held


def _acquire(held: FileLock, waiting: Callable[[], None] | None) -> None:
    path = Path(held.lock_file)
    while True:
        with suppress(Timeout):
            held.acquire(timeout=0)
            return
        if is_locked(path):
            break
        # Its last owner deleted it between opening and locking it: there is a new one now.
    if waiting is None:
        raise Taken(path)
    waiting()
    held.acquire()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file now. Where that cannot be told it is True, without locks False."""
    try:
        with path.open() as file:
            return not lock_descriptor(file.fileno(), blocking=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno not in _NO_LOCKS


def without_locks(folder: Path, what: str, setting: str) -> str:
    """The warning where there are no locks: ``what`` is started in ``folder``, which ``setting=`` chooses."""
    return (
        f"{folder}: this file system has no locks, so that two processes at one {what} are not kept apart; start each "
        f"{what} once, or choose another place by {setting}=."
    )


def tell_without_locks(folder: Path, setting: str, say: Callable[[str], None]) -> None:
    """Warn before runs are started in ``folder``, which need not be there yet."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            lock_descriptor(file.fileno(), blocking=False)
    except OSError as error:
        # What cannot be written to is told by whoever writes there.
        if error.errno in _NO_LOCKS:
            say(without_locks(folder, "run", setting))
