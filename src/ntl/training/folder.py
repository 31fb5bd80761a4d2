"""A run's folder: one process at a time, and what a killed one left. torch is not needed to tell."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ntl.system.errors import Busy, UserError
from ntl.system.locks import Taken, is_locked, lock, without_locks
from ntl.system.secrets import redact
from ntl.training.checkpoints import CHECKPOINTS, by_step, keep_newest


def say(message: str) -> None:
    """A line for the person who watches, from the first rank only."""
    if int(os.environ.get("RANK", "0")) == 0:
        print(redact(message), flush=True)


def remove_leftovers(folder: Path, keep: int) -> None:
    """Of a finished run's checkpoints delete what it was killed before it could: all but the newest ``keep``.

    Nothing is done, nor said, while another process is at the run, or where it cannot be written to.
    """
    checkpoints = folder / CHECKPOINTS
    # Counted first: which is the newest whole one takes reading it.
    if int(os.environ.get("RANK", "0")) == 0 and len(by_step(checkpoints)) > keep:
        with suppress(UserError), only_one(folder):
            keep_newest(checkpoints, keep)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Nobody else is at the run of this folder meanwhile. ``Busy`` where another process is.

    UserError where the folder's place cannot be written to. Without locks a warning, and no protection.
    """
    # Ranks of one run share the lock that the first of them holds.
    if int(os.environ.get("RANK", "0")) != 0:
        yield
        return
    path = _lock_of(folder)
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(lock(path))
        except Taken as error:
            raise Busy(f"{folder}: another process is at this run; wait for it.") from error
        except OSError as error:
            raise UserError(f"output_dir={folder.parent}: {error.strerror}; choose another by output_dir=.") from error
        if not held:
            say(without_locks(folder.parent, "run", "output_dir"))
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


def is_taken(folder: Path) -> bool:
    """Whether a process is at the run of this folder now; where there are no locks it cannot be told, and is False."""
    return is_locked(_lock_of(folder))
