"""The files of a checkpoint: when it is complete, what it says of its run, and which checkpoints are kept.

A checkpoint is *complete* (whole) if it has a manifest and every file that the manifest names is unchanged.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ntl.config.folders import RESULTS
from ntl.system.errors import UserError
from ntl.system.files import remove_parts, sha256_changes, sha256_of, sync, write_atomically

CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"
METERS = "meters.json"  # what a resumed run goes on counting from (``ntl.training.trainer``)
DATA = "data.json"  # sha256 of each data file that the run is trained on
RUN = "run.json"  # ``ntl.training.resume.describe``
STATE = "trainer_state.json"
WEIGHTS = "model.safetensors"
# Marks a checkpoint that is never pruned, because other runs start from its weights (``keep_steps``).
KEEP = "keep"
STEP = re.compile(r"checkpoint-([0-9]+)")
# Published weights that other runs start from: <id>/checkpoints/checkpoint-<step>, without the optimizer's state.
BASES = RESULTS / "bases"


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, whole or not at all."""
    write_atomically(path, json.dumps(value))


def read_json(path: Path) -> Any:
    """Read JSON of a checkpoint, whose manifest says that it is as it was written."""
    return json.loads(path.read_bytes())


def write_manifest(folder: Path) -> None:
    """Write the manifest, which names every file with its sha256, last: without it, a checkpoint is incomplete.

    All files are synced to the disk before it is written, and it is synced before this returns, because older
    checkpoints are deleted next.
    """
    remove_parts(folder)  # of a process that was killed while it wrote the same checkpoint
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    for file in files:
        sync(file)
    write_json(folder / MANIFEST, {path.name: sha256_of(path) for path in files})
    sync(folder)
    sync(folder.parent)


def is_whole(folder: Path) -> bool:
    """Return whether every file that the manifest names is there, unchanged."""
    try:
        manifest = read_json(folder / MANIFEST)
        # A manifest written here names only files of its own folder.
        local = all(Path(name).name == name for name in manifest)
        return bool(manifest) and local and all(sha256_of(folder / name) == known for name, known in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def step_of(folder: Path) -> int:
    """Return the optimizer step in the name of a checkpoint folder, or -1 for another folder."""
    match = STEP.fullmatch(folder.name)
    return int(match.group(1)) if match else -1


def weights_digest(folder: Path) -> str:
    """Return the sha256 of a complete checkpoint's weights, read from its manifest."""
    return str(read_json(folder / MANIFEST)[WEIGHTS])


def checkpoint_at(run: Path, step: int) -> Path:
    """Return the folder of a run's checkpoint at an optimizer step."""
    return run / CHECKPOINTS / f"checkpoint-{step}"


def find_base(base: str, *folders: Path) -> Path | None:
    """Return the complete checkpoint that ``base`` (``ID@STEP``) names, from the first of the folders that has it."""
    name, _, step = base.rpartition("@")
    found = (checkpoint_at(runs / name, int(step)) for runs in folders)
    return next(filter(is_whole, found), None)


def publish_base(checkpoint: Path, bases: Path) -> Path:
    """Copy a complete checkpoint's weights, its model's config and its run's description, about a third of its size.

    Returns:
        The copy, itself a complete checkpoint that runs can start from, but that nothing can be resumed from.
    """
    target = checkpoint_at(bases / checkpoint.parent.parent.name, step_of(checkpoint))
    target.mkdir(parents=True, exist_ok=True)
    for path in (*checkpoint.glob("*.safetensors"), checkpoint / "config.json", checkpoint / RUN):
        shutil.copyfile(path, target / path.name)
    write_manifest(target)
    return target


def not_kept(run: Path, steps: Sequence[int]) -> list[int]:
    """Return the steps of ``steps`` at which the run has no complete checkpoint."""
    return [step for step in steps if not is_whole(checkpoint_at(run, step))]


def by_step(folder: Path) -> list[Path]:
    """Return all checkpoints in ``folder``, complete or not, newest first."""
    return sorted((path for path in folder.glob("checkpoint-*") if step_of(path) >= 0), key=step_of, reverse=True)


def newest_whole(folder: Path) -> tuple[Path | None, list[Path]]:
    """Return the newest complete checkpoint, if any, and the newer ones, which are damaged or incomplete."""
    damaged = []
    for checkpoint in by_step(folder):
        if is_whole(checkpoint):
            return checkpoint, damaged
        damaged.append(checkpoint)
    return None, damaged


def prune(newest: Path, keep: int, best: int | None = None) -> None:
    """Delete all checkpoints except ``newest``, the ``keep`` - 1 before it, ``best``, and earlier ones marked ``KEEP``.

    The Trainer's ``save_total_limit`` would delete the marked ones, and before the new one is complete. ``newest`` was
    just written: checkpoints of later steps are damaged or of an abandoned attempt, and no run may resume from them.
    """
    checkpoints = by_step(newest.parent)
    kept = [checkpoint for checkpoint in checkpoints if step_of(checkpoint) <= step_of(newest)][:keep]
    for checkpoint in set(checkpoints).difference(kept):
        is_kept = (checkpoint / KEEP).is_file() and step_of(checkpoint) < step_of(newest)
        if step_of(checkpoint) != best and not is_kept:
            shutil.rmtree(checkpoint, ignore_errors=True)


def keep_newest(folder: Path, keep: int, best: int | None = None) -> None:
    """Delete all checkpoints in ``folder`` except the newest complete one, the ``keep`` - 1 before it, and ``best``."""
    newest, _ = newest_whole(folder)
    if newest:
        prune(newest, keep, best)


def check_data(folder: Path, files: Mapping[str, str]) -> None:
    """Raise ``UserError`` if a checkpoint was trained on other data than ``files`` (name -> sha256)."""
    if how := sha256_changes(read_json(folder / DATA), files):
        raise UserError(
            f"{folder}: the data is not what it was trained on: {how}; restore it, or start over with resume=never."
        )
