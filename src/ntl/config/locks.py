"""Locks between processes, which the system releases when their owner ends, however it ends."""

import errno
import fcntl
import tempfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import IO

_HELD = (errno.EWOULDBLOCK, errno.EACCES)
# Some network, cluster and user-space file systems have none, or are mounted without them.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Lock(Enum):
    """Who holds a lock after it was asked for; ``none`` where the file system has no locks."""

    ours = "ours"
    theirs = "theirs"
    none = "none"


def acquire(handle: int | IO[str] | IO[bytes], *, wait: bool = False) -> Lock:
    """Ask for the lock of an open file, which closing it gives back. OSError for whatever else goes wrong."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return Lock.none
        if error.errno not in _HELD or wait:
            raise
        return Lock.theirs
    return Lock.ours


def without_locks(folder: Path, what: str, setting: str) -> str:
    """The warning where ``acquire`` found none: ``what`` is started in ``folder``, which ``setting=`` chooses."""
    return (
        f"{folder}: this file system has no locks, so that two processes at one {what} are not kept apart; start each "
        f"{what} once, or choose another place by {setting}=."
    )


def tell_without_locks(folder: Path, setting: str, say: Callable[[str], None]) -> None:
    """Warn before runs are started in ``folder``, which need not be there yet."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            found = acquire(file)
    except OSError:  # it cannot be written to, which whoever writes there tells
        return
    if found is Lock.none:
        say(without_locks(folder, "run", setting))
