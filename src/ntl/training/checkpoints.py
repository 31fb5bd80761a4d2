"""The files of a checkpoint: when it is complete, what it says of its run, and which checkpoints are kept.

A checkpoint is *complete* (whole) if it has a manifest and every file that the manifest names is unchanged.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ntl.config.folders import RESULTS
from ntl.results.record import check
from ntl.system.errors import UserError
from ntl.system.files import remove_parts, sha256_changes, sha256_of, sync, write_atomically

CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"
METERS = "meters.json"  # ``Meters``
DATA = "data.json"  # sha256 of each data file that the run is trained on
RUN = "run.json"
WEIGHTS = "model.safetensors"
# Marks a checkpoint that is never pruned, because other runs start from its weights (``keep_steps``).
KEEP = "keep"
STEP = re.compile(r"checkpoint-([0-9]+)")
# Published weights that other runs start from: <id>/checkpoints/checkpoint-<step>, without the optimizer's state.
BASES = RESULTS / "bases"


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, whole or not at all."""
    write_atomically(path, json.dumps(value))


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
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        # A manifest written here names only files of its own folder.
        local = all(Path(name).name == name for name in manifest)
        return bool(manifest) and local and all(sha256_of(folder / name) == known for name, known in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def step_of(folder: Path) -> int:
    """Return the optimizer step in the name of a checkpoint folder, or -1 for another folder."""
    match = STEP.fullmatch(folder.name)
    return int(match.group(1)) if match else -1


def steps_taken(folder: Path) -> int:
    """Return the optimizer steps of a complete checkpoint, whatever its folder's name. UserError if it has none."""
    path = folder / "trainer_state.json"
    try:
        return int(json.loads(path.read_bytes())["global_step"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: no step of a training ({error}); give another checkpoint.") from error


def weights_digest(folder: Path) -> str:
    """Return the sha256 of a complete checkpoint's weights, read from its manifest."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return str(manifest[WEIGHTS])


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
    found = [path for path in folder.glob("checkpoint-*") if step_of(path) >= 0] if folder.is_dir() else []
    return sorted(found, key=step_of, reverse=True)


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

    ``newest`` was just written. Checkpoints of later steps are therefore damaged or belong to an abandoned attempt, and
    no run may resume from them.
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


class Meters(NamedTuple):
    """What a run has counted so far, so that a resumed run logs and records what an uninterrupted one does.

    Attributes:
        meters: Sums for the next log line, over all ranks, since optimizer step ``since``.
        since: Optimizer step of the last log line.
        seen: Number of examples and of tokens since the start of training, over all ranks.
        seconds: Wall time of all processes of the run so far; 0 in a checkpoint that does not have it.
    """

    meters: Sequence[float]
    since: int
    seen: Sequence[int]
    seconds: float


def read_meters(path: Path) -> Meters:
    """Read the meters of a checkpoint, a JSON object. ValueError if a value has another type."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    check("meters", stored["meters"], list[float])
    check("since", stored["since"], int)
    check("seen", stored["seen"], list[int])
    check("seconds", seconds := stored.get("seconds", 0.0), float)
    return Meters(stored["meters"], stored["since"], stored["seen"], seconds)


def check_data(folder: Path, files: Mapping[str, str]) -> None:
    """Raise ``UserError`` if a checkpoint was trained on other data than ``files`` (name -> sha256).

    A checkpoint of a version that did not write the data files passes.
    """
    before = _read_object(folder, DATA) if (folder / DATA).is_file() else files
    if how := sha256_changes(before, files):
        raise UserError(
            f"{folder}: the data is not what it was trained on: {how}; restore it, or start over with resume=never."
        )


def read_run(folder: Path) -> dict[str, Any]:
    """Read the description of a checkpoint's run (``ntl.training.resume.describe``); {} if a version wrote none."""
    return _read_object(folder, RUN, "config", "made_of") if (folder / RUN).is_file() else {}


def _read_object(folder: Path, name: str, *parts: str) -> dict[str, Any]:
    try:
        written = json.loads((folder / name).read_bytes())
        if not all(isinstance(each, dict) for each in (written, *(written[part] for part in parts))):
            raise ValueError("no JSON object")
        return written
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, f"{name}: not as it was written") from error


def _damaged(folder: Path, reason: str) -> UserError:
    return UserError(
        f"{folder}: cannot resume from this checkpoint ({reason}); remove this folder, and the same command resumes "
        "from the checkpoint before it."
    )


# The types of the trainer's state that training depends on; TrainerState itself accepts any value.
STATE: dict[str, Any] = {
    "global_step": int,
    "max_steps": int,
    "epoch": float | None,
    "num_train_epochs": int,
    "num_input_tokens_seen": int,
    "total_flos": float,
    "log_history": list[dict[str, Any]],
    "stateful_callbacks": dict[str, dict[str, Any]],
}


@contextmanager
def one_line_when_damaged(checkpoint: Path) -> Iterator[None]:
    """Turn any error of the libraries that read a checkpoint's files into a ``UserError`` that names it."""
    try:
        yield
    except (UserError, MemoryError, PermissionError):
        raise
    except Exception as error:  # pickle, safetensors, json, torch and transformers raise many types
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which is not imported here
            raise
        reason = (str(error).splitlines() or [""])[0][:160]
        raise _damaged(checkpoint, f"{type(error).__name__}: {reason}") from error


def check_state(checkpoint: Path) -> None:
    """Raise ``UserError`` unless the trainer's state, which is read first, has the expected types."""
    # Imported here, so that a checkpoint is chosen without loading torch.
    from transformers import TrainerState

    with one_line_when_damaged(checkpoint):
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        for name, kind in STATE.items():
            check(name, getattr(state, name), kind)
        if "TrainerControl" not in (state.stateful_callbacks or ()):  # which the next checkpoint is written from
            raise ValueError("stateful_callbacks without TrainerControl")
        for entry in state.log_history:
            check("log_history.step", entry.get("step"), int)
            check("log_history.probe", entry.get("probe"), dict[str, float] | None)
            # Not check(), which refuses NaN: a gradient norm that is not finite is logged as it is.
            if wrong := [name for name, value in entry.items() if name != "probe" and type(value) not in (int, float)]:
                raise ValueError(f"log_history: {wrong[0]} is not a number")
