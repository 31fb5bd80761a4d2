"""A run's folder: its lock, and the removal of leftover checkpoints. Nothing here imports torch."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ntl.results import read_record
from ntl.system.errors import Busy, UserError
from ntl.system.files import Taken, is_locked, lock, without_locks
from ntl.system.secrets import redact
from ntl.training.checkpoints import CHECKPOINTS, by_step, keep_newest, step_of

RECORD = "record.json"


def is_first() -> bool:
    """Return whether this process is the first rank, which prints and writes for all; also without ranks."""
    return int(os.environ.get("RANK", "0")) == 0


def say(message: str) -> None:
    """Print a line for the user, on the first rank only, with secrets replaced."""
    if is_first():
        print(redact(message), flush=True)


def best_step(folder: Path) -> int | None:
    """Return the step that a finished run was scored at, if ``trainer.best`` chose it, else None."""
    path = folder / RECORD
    record = read_record(path) if path.is_file() else None
    return record.scored_step if record and "best" in record.model else None


def remove_leftovers(folder: Path, keep: int) -> None:
    """Delete all but the newest ``keep`` checkpoints of a finished run that was killed before it could do so.

    Does nothing, silently, while another process holds the run's lock, or if the folder cannot be written to.
    """
    # Counting comes first, because finding the newest complete checkpoint reads all of its files.
    checkpoints = by_step(folder / CHECKPOINTS)
    if is_first() and len(checkpoints) > keep:
        best = best_step(folder)
        if sum(step_of(checkpoint) != best for checkpoint in checkpoints) > keep:
            with suppress(UserError), only_one(folder):
                keep_newest(folder / CHECKPOINTS, keep, best)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder; without locks in the file system, a warning is printed.

    Raises:
        Busy: Another process holds the lock.
        UserError: The parent of the folder cannot be written to.
    """
    # The first rank holds the lock for all ranks of its run.
    if not is_first():
        yield
        return
    path = _lock_of(folder)
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(lock(path))
        except Taken as error:
            raise Busy(f"{folder}: another process is working on this run; wait for it.") from error
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
    """Return whether a process holds the lock of a run's folder now; always False on a file system without locks."""
    return is_locked(_lock_of(folder))
