"""What makes a checkpoint whole, and which one a run continues from."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ntl.results.check import check
from ntl.system.errors import UserError
from ntl.system.files import remove_parts, sha256_of, sync, write_atomically

CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"
METERS = "meters.json"
DATA = "data.json"
RUN = "run.json"
WEIGHTS = "model.safetensors"
# In a checkpoint that is never deleted: runs begin from it.
KEEP = "keep"
STEP = re.compile(r"checkpoint-([0-9]+)")


def _write_json(path: Path, value: object) -> None:
    write_atomically(path, json.dumps(value))


def write_manifest(folder: Path) -> None:
    """Name every file with its sha256. Written last, so that a checkpoint without it is not whole.

    Everything is on the disk before, and the manifest after: older checkpoints are then deleted.
    """
    remove_parts(folder)  # of a process that was killed at the same checkpoint
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    for file in files:
        sync(file)
    _write_json(folder / MANIFEST, {path.name: sha256_of(path) for path in files})
    sync(folder)
    sync(folder.parent)


def digest(folder: Path) -> str:
    """The sha256 of the manifest, and so of every file; "" without one."""
    return sha256_of(folder / MANIFEST) if (folder / MANIFEST).is_file() else ""


def is_whole(folder: Path) -> bool:
    """Whether every file that the manifest names is there, unchanged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        # Of files in it: a name with a separator is none of ours.
        own = all(Path(name).name == name for name in manifest)
        return bool(manifest) and own and all(sha256_of(folder / name) == digest for name, digest in manifest.items())
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
    return run / CHECKPOINTS / f"checkpoint-{step}"


def not_kept(run: Path, steps: Sequence[int]) -> list[int]:
    """Those of ``steps`` of which the run has no whole checkpoint."""
    return [step for step in steps if not is_whole(checkpoint_at(run, step))]


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


# Of the trainer's state: what it counts with. Its own class takes whatever the file holds.
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
    """Raise a ``UserError`` naming ``checkpoint`` for whatever the libraries that read its files raise."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # pickle, safetensors, json, torch and transformers each raise their own kinds here
        reason = (str(error).splitlines() or [""])[0][:160]
        raise UserError(
            f"{checkpoint}: cannot be continued from ({type(error).__name__}: {reason}); remove this folder, and the "
            "same command takes the checkpoint before it."
        ) from error


def check_state(checkpoint: Path) -> None:
    """UserError unless the trainer's state, which is read first, is one."""
    # Imported here: which checkpoint to take is told without torch.
    from transformers import TrainerState

    with one_line_when_damaged(checkpoint):
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        for name, kind in STATE.items():
            check(name, getattr(state, name), kind)
        if "TrainerControl" not in (state.stateful_callbacks or ()):  # what the next checkpoint is written from
            raise ValueError("stateful_callbacks without TrainerControl")
        for entry in state.log_history:
            check("log_history.step", entry.get("step"), int)
            check("log_history.probe", entry.get("probe"), dict[str, float] | None)
            # A norm of gradients that is not finite is logged as it is.
            if wrong := [name for name, value in entry.items() if name != "probe" and type(value) not in (int, float)]:
                raise ValueError(f"log_history: {wrong[0]} is no number")
