"""A run's folder: its lock, and its checkpoints. Nothing here imports torch.

A checkpoint is *complete* (whole) if it has a manifest and every file that the manifest names is unchanged.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from filelock import Timeout

from ntl.config.folders import RESULTS
from ntl.evaluation.metrics import find_metric
from ntl.results.record import RECORD, run_record
from ntl.system.errors import Busy, UserError, one_line_when_edited
from ntl.system.files import is_locked, lock, sha256_changes, sha256_of, sync, write_atomically
from ntl.system.messages import logger

CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"
DATA = "data.json"  # sha256 of each data file that the run is trained on
RUN = "run.json"  # what ``ntl.training.resume`` compares
STATE = "trainer_state.json"
WEIGHTS = "model.safetensors"
# Marks a checkpoint that is never pruned, because other runs start from its weights (``keep_steps``).
KEEP = "keep"
# Published weights that other runs start from: <id>/checkpoints/checkpoint-<step>, without the optimizer's state.
BASES = RESULTS / "bases"
STEP = re.compile(r"checkpoint-([0-9]+)")
# What launchers set, as it is without one.
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "-1"}


# ---- the processes of a run, and its lock


def processes() -> int:
    """Return the number of ranks: as many as torchrun started, otherwise one. UserError as of ``is_first``."""
    return _launched("WORLD_SIZE")


def is_first() -> bool:
    """Return whether this process is the first rank, which prints and writes for all; also without ranks.

    UserError: a part of what launchers set is in the environment, left over in a shell.
    """
    return _launched("RANK") == 0


def _launched(name: str) -> int:
    given = [f"{key}={os.environ[key]}" for key, value in ALONE.items() if os.environ.get(key, value) != value]
    if given and (lost := [key for key in (*ALONE, "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(key)]):
        raise UserError(
            f"{', '.join(given)}: set in the environment as torchrun sets it, but without {', '.join(lost)}; run "
            f"`unset {' '.join(ALONE)}` for a single process, or start several by torchrun."
        )
    return int(os.environ.get(name, ALONE[name]))


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder; without locks in the file system, a warning is logged.

    Busy: another process holds the lock. UserError: the parent of the folder cannot be written to.
    """
    if not is_first():  # the first rank holds the lock for all ranks of its run
        yield
        return
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(lock(_lock_of(folder)))
        except Timeout as error:
            raise Busy(f"{folder}: another process is working on this run; wait for it.") from error
        except OSError as error:
            raise UserError(f"output_dir={folder.parent}: {error.strerror}; choose another by output_dir=.") from error
        if not held:
            logger.warning(
                f"{folder.parent}: this file system has no locks, so that two processes at one run are not kept apart; "
                "start each run once, or choose another place by output_dir=."
            )
        stack.callback(_lock_of(folder).unlink, missing_ok=True)
        yield


def is_taken(folder: Path) -> bool:
    """Return whether a process holds the lock of a run's folder now; always False on a file system without locks."""
    return is_locked(_lock_of(folder))


def _lock_of(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


# ---- a checkpoint


def read_json(path: Path) -> Any:
    """Read JSON of a checkpoint."""
    return json.loads(path.read_bytes())


def write_manifest(folder: Path) -> None:
    """Write the manifest, which names every file with its sha256, last: without it, a checkpoint is incomplete.

    All is synced to the disk before this returns, because older checkpoints are deleted next.
    """
    remove_parts(folder)  # of a process that was killed while it wrote the same checkpoint
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    for file in files:
        file.chmod(0o644)  # safetensors makes its files unreadable for other users
        sync(file)
    write_atomically(folder / MANIFEST, json.dumps({path.name: sha256_of(path) for path in files}))
    sync(folder)
    sync(folder.parent)


def is_complete(folder: Path) -> bool:
    """Return whether every file that the manifest names is there, unchanged."""
    try:
        manifest = read_json(folder / MANIFEST)
        return bool(manifest) and all(sha256_of(folder / name) == known for name, known in manifest.items())
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def step_of(folder: Path) -> int:
    """Return the optimizer step in the name of a checkpoint folder, or -1 for another folder."""
    match = STEP.fullmatch(folder.name)
    return int(match.group(1)) if match else -1


def checkpoint_at(run: Path, step: int) -> Path:
    """Return the folder of a run's checkpoint at an optimizer step."""
    return run / CHECKPOINTS / f"checkpoint-{step}"


def check_data(folder: Path, files: Mapping[str, str]) -> None:
    """Raise ``UserError`` if a checkpoint was trained on other data than ``files`` (name -> sha256)."""
    with one_line_when_edited(folder, DATA):
        how = sha256_changes(read_json(folder / DATA), files)
    if how:
        raise UserError(
            f"{folder}: the data is not what it was trained on: {how}; restore it, or start over with resume=never."
        )


def remove_parts(folder: Path) -> None:
    """Remove the unfinished files of killed processes from a folder in which no other process is writing."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


# ---- the checkpoints of a run


def by_step(folder: Path) -> list[Path]:
    """Return all checkpoints in ``folder``, complete or not, newest first."""
    return sorted((path for path in folder.glob("checkpoint-*") if step_of(path) >= 0), key=step_of, reverse=True)


def latest_complete(folder: Path) -> tuple[Path | None, list[Path]]:
    """Return the newest complete checkpoint, if any, and the newer ones, which are damaged or incomplete."""
    checkpoints = by_step(folder)
    damaged = list(takewhile(lambda checkpoint: not is_complete(checkpoint), checkpoints))
    return next(iter(checkpoints[len(damaged) :]), None), damaged


def not_kept(run: Path, steps: Sequence[int]) -> list[int]:
    """Return the steps of ``steps`` at which the run has no complete checkpoint."""
    return [step for step in steps if not is_complete(checkpoint_at(run, step))]


def prune(newest: Path, keep: int, best: int | None = None) -> None:
    """Delete all checkpoints except ``newest``, the ``keep`` - 1 before it, ``best``, and earlier ones marked ``KEEP``.

    The Trainer's ``save_total_limit`` would delete the marked ones, and before the new one is complete. ``newest`` was
    just written: checkpoints of later steps are damaged or of an abandoned attempt, and no run may resume from them.
    """
    earlier = [checkpoint for checkpoint in by_step(newest.parent) if step_of(checkpoint) <= step_of(newest)]
    marked = [checkpoint for checkpoint in earlier[1:] if (checkpoint / KEEP).is_file()]
    for checkpoint in set(by_step(newest.parent)).difference(earlier[:keep], marked):
        if step_of(checkpoint) != best:
            shutil.rmtree(checkpoint, ignore_errors=True)


# ---- the best one


class Best(NamedTuple):
    """The best evaluation so far: its step (None while there is none), its value, and how many came after it."""

    step: int | None = None
    value: float = math.nan
    since: int = 0


def best_of(history: Iterable[Mapping[str, Any]], metric: str) -> Best:
    """Return the best evaluation of a history: the first of equal ones, no undefined one, and none without a metric."""
    best, sign = Best(), find_metric(metric).better.value if metric else 0
    for entry in history if metric else ():
        if "eval_loss" in entry:
            value = entry.get(f"eval_{metric}", math.nan)
            if not math.isnan(value) and (best.step is None or sign * value > sign * best.value):
                best = Best(int(entry["step"]), value)
            elif best.step is not None:
                best = best._replace(since=best.since + 1)
    return best


def best_step(folder: Path) -> int | None:
    """Return the step that a finished run was scored at, if ``trainer.best`` chose it, else None."""
    record = run_record(folder, renamed=True) if (folder / RECORD).is_file() else None
    return record.scored_step if record and "best" in record.model else None


# ---- the weights that other runs start from


def find_base(base: str, *folders: Path) -> Path | None:
    """Return the complete checkpoint that ``base`` (``ID@STEP``) names, from the first of the folders that has it."""
    name, _, step = base.rpartition("@")
    return next(filter(is_complete, (checkpoint_at(runs / name, int(step)) for runs in folders)), None)


def publish_base(checkpoint: Path, bases: Path) -> Path:
    """Copy a complete checkpoint's weights, its model's config and its run's description, about a third of its size.

    The copy is itself a complete checkpoint that runs can start from, but that nothing can be resumed from.
    """
    target = checkpoint_at(bases / checkpoint.parent.parent.name, step_of(checkpoint))
    target.mkdir(parents=True, exist_ok=True)
    for path in (*checkpoint.glob("*.safetensors"), checkpoint / "config.json", checkpoint / RUN):
        shutil.copyfile(path, target / path.name)
    write_manifest(target)
    return target
