"""What makes a checkpoint whole, and which one a run continues from."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ntl.config import UserError
from ntl.results.check import check

MANIFEST = "manifest.json"
METERS = "meters.json"
DATA = "data.json"
RUN = "run.json"
WEIGHTS = "model.safetensors"
# In a checkpoint that is never deleted: runs begin from it.
KEEP = "keep"
STEP = re.compile(r"checkpoint-([0-9]+)")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_json(path: Path, value: object) -> None:
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def write_manifest(folder: Path) -> None:
    """Name every file with its sha256. Written last, so that a checkpoint without it is not whole.

    Everything is on the disk before, and the manifest after: older checkpoints are then deleted.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    for file in files:
        _sync(file)
    _write_json(folder / MANIFEST, {path.name: _sha256(path) for path in files})
    _sync(folder)
    _sync(folder.parent)


def digest(folder: Path) -> str:
    """The sha256 of the manifest, and so of every file; "" without one."""
    return _sha256(folder / MANIFEST) if (folder / MANIFEST).is_file() else ""


def is_whole(folder: Path) -> bool:
    """Whether every file that the manifest names is there, unchanged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        # Of files in it: a name with a separator is none of ours.
        own = all(Path(name).name == name for name in manifest)
        return bool(manifest) and own and all(_sha256(folder / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def step_of(folder: Path) -> int:
    """The optimizer step that a checkpoint was taken at, -1 for another folder."""
    match = STEP.fullmatch(folder.name)
    return int(match.group(1)) if match else -1


def steps_taken(folder: Path) -> int:
    """The optimizer steps behind a whole checkpoint, whatever its folder is called. UserError where it does not say."""
    path = folder / "trainer_state.json"
    try:
        return int(json.loads(path.read_bytes())["global_step"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: no step of a training ({error}); give another checkpoint.") from error


def weights_digest(folder: Path) -> str:
    """The sha256 of a whole checkpoint's weights, as its manifest has it."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return str(manifest[WEIGHTS])


def checkpoint_at(run: Path, step: int) -> Path:
    """The folder of a run's checkpoint."""
    return run / "checkpoints" / f"checkpoint-{step}"


def by_step(folder: Path) -> list[Path]:
    """All checkpoints, the newest first."""
    found = [path for path in folder.glob("checkpoint-*") if step_of(path) >= 0] if folder.is_dir() else []
    return sorted(found, key=step_of, reverse=True)


def newest_whole(folder: Path) -> tuple[Path | None, list[Path]]:
    """The newest whole checkpoint, and the newer ones that are damaged or unfinished."""
    damaged = []
    for checkpoint in by_step(folder):
        if is_whole(checkpoint):
            return checkpoint, damaged
        damaged.append(checkpoint)
    return None, damaged


def prune(newest: Path, keep: int) -> None:
    """Delete all checkpoints but ``newest``, just written, the ``keep`` - 1 before it, and those to ``KEEP``.

    Those of later steps are damaged, or of an attempt that was given up: they must not be continued from.
    """
    checkpoints = by_step(newest.parent)
    kept = [checkpoint for checkpoint in checkpoints if step_of(checkpoint) <= step_of(newest)][:keep]
    for checkpoint in set(checkpoints).difference(kept):
        if (checkpoint / KEEP).is_file():
            continue
        shutil.rmtree(checkpoint, ignore_errors=True)


def keep_newest(folder: Path, keep: int) -> None:
    """Of the checkpoints in ``folder`` delete all but the newest whole one and the ``keep`` - 1 before it."""
    newest, _ = newest_whole(folder)
    if newest:
        prune(newest, keep)


def write_meters(path: Path, meters: Sequence[float], since: int, seen: Sequence[int]) -> None:
    """The sums of the log line under way, over all ranks, so that a resumed run logs what an uninterrupted one does.

    Args:
        meters: Sums since optimizer step ``since``.
        seen: Examples and tokens since the start of training.
    """
    _write_json(path, {"meters": list(meters), "since": since, "seen": list(seen)})


def read_meters(path: Path) -> tuple[list[float], int, list[int]]:
    """What ``write_meters`` wrote. ValueError for values of other kinds."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    check("meters", stored["meters"], list[float])
    check("since", stored["since"], int)
    check("seen", stored["seen"], list[int])
    return stored["meters"], stored["since"], stored["seen"]


def write_data(folder: Path, files: Mapping[str, str]) -> None:
    """The sha256 of each data file that the run is trained on."""
    _write_json(folder / DATA, dict(files))


def check_data(folder: Path, files: Mapping[str, str]) -> None:
    """Raise ``UserError`` where a checkpoint was trained on other data than these files; an old one does not say."""
    before = _read_written(folder, DATA) if (folder / DATA).is_file() else files
    if changed := [name for name in sorted({*before, *files}) if before.get(name) != files.get(name)]:
        how = ", ".join(f"{name} had sha256 {before.get(name)} and has {files.get(name)}" for name in changed)
        raise UserError(
            f"{folder}: the data is not what it was trained on: {how}; restore it, or begin anew with resume=never."
        )


def write_run(folder: Path, run: Mapping[str, Any]) -> None:
    """The run that the checkpoint is of, as ``ntl.training.resume.describe`` has it."""
    _write_json(folder / RUN, dict(run))


def read_run(folder: Path) -> dict[str, Any]:
    """What ``write_run`` wrote; empty for a checkpoint from before there was such a file."""
    return _read_written(folder, RUN, "config", "made_of") if (folder / RUN).is_file() else {}


def _read_written(folder: Path, name: str, *parts: str) -> dict[str, Any]:
    try:
        written = json.loads((folder / name).read_bytes())
        if not all(isinstance(each, dict) for each in (written, *(written[part] for part in parts))):
            raise ValueError("no object of JSON")
        return written
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder}: cannot be continued from ({name}: not what was written); "
            "remove this folder, and the same command takes the checkpoint before it."
        ) from error
