"""A run's folder: its lock, its checkpoints, and which one a run resumes or starts from. Nothing here imports torch.

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
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

from filelock import Timeout

from ntl.config import Config
from ntl.config.folders import RESULTS
from ntl.config.identity import identity_fields
from ntl.config.trainer import TrainerConfig
from ntl.evaluation.metrics import find_metric
from ntl.results.match import leaves
from ntl.results.record import RECORD, run_record
from ntl.system.errors import Busy, UserError, one_line_when_edited, redact
from ntl.system.files import is_locked, lock, sha256_changes, sha256_of, sync, write_atomically

CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"
METERS = "meters.json"  # what a resumed run goes on counting from (``ntl.training.trainer``)
DATA = "data.json"  # sha256 of each data file that the run is trained on
RUN = "run.json"  # ``describe``
STATE = "trainer_state.json"
WEIGHTS = "model.safetensors"
# Marks a checkpoint that is never pruned, because other runs start from its weights (``keep_steps``).
KEEP = "keep"
STEP = re.compile(r"checkpoint-([0-9]+)")
# Published weights that other runs start from: <id>/checkpoints/checkpoint-<step>, without the optimizer's state.
BASES = RESULTS / "bases"
# Schedules whose learning rate does not depend on the number of steps: max_steps only decides where they end.
ENDLESS = ("plateau", "constant")
MAX_STEPS = "trainer.max_steps"
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
    given = [f"{each}={os.environ[each]}" for each, value in ALONE.items() if os.environ.get(each, value) != value]
    if given and (lost := [each for each in (*ALONE, "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(each)]):
        raise UserError(
            f"{', '.join(given)}: set in the environment as torchrun sets it, but without {', '.join(lost)}; run "
            f"`unset {' '.join(ALONE)}` for a single process, or start several by torchrun."
        )
    return int(os.environ.get(name, ALONE[name]))


def say(message: str) -> None:
    """Print a line for the user, on the first rank only, with secrets replaced."""
    if is_first():
        print(redact(message), flush=True)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder; without locks in the file system, a warning is printed.

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
            say(
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


# ---- where a run resumes


def describe(config: Config, name: str) -> dict[str, Any]:
    """Describe a run, for its checkpoints: its id, all settings that affect its result, and its number of ranks.

    ``ntl.training.train`` adds ``made_of``, the sha256 of the tokenizer and of the weights that the run started from,
    and ``bf16``.
    """
    # Through JSON, so that it compares equal to a description that was read back.
    return json.loads(json.dumps({"id": name, "config": identity_fields(config), "processes": processes()}))


def checkpoint_for(config: Config, folder: Path) -> Path | None:
    """Return the checkpoint that the run of ``folder`` resumes from, or None if it starts from the beginning.

    UserError: ``config.resume`` is not a complete checkpoint, or the checkpoint belongs to another run, was written by
    another number of processes, or the best one before it is not there.
    """
    if config.resume == "never":
        return None
    if config.resume == "auto":
        checkpoint, damaged = latest_complete(folder / CHECKPOINTS)
        for each in damaged:
            say(f"{each}: damaged or incomplete; skipped.")
    else:
        checkpoint = Path(config.resume)
        if not (is_complete(checkpoint) and (checkpoint / STATE).is_file()):  # published weights cannot be resumed
            raise UserError(f"resume={checkpoint}: no complete checkpoint; give one like outputs/ID/checkpoints/NAME.")
    if checkpoint:
        with one_line_when_edited(checkpoint, f"{STATE} or {RUN}"):
            _check_same_run(checkpoint, config, folder)
    return checkpoint


def _check_same_run(checkpoint: Path, config: Config, folder: Path) -> None:
    state, before, now = read_json(checkpoint / STATE), read_json(checkpoint / RUN), describe(config, folder.name)
    step, trainer, history = index(state["global_step"]), config.trainer, state["log_history"]
    index(max((each["step"] for each in history), default=0))  # each has one, by which it is found
    if step > trainer.max_steps:
        raise UserError(f"resume={checkpoint}: it already has {step} steps; set {MAX_STEPS} to {step} or more.")
    if step_of(checkpoint) not in (-1, step):
        raise UserError(f"{checkpoint}: its state is that of step {step}; give the folder the name checkpoint-{step}.")
    changed = _differences(before["config"], now["config"])
    if MAX_STEPS in changed and _is_on_the_way(step, before["config"], config):
        del changed[MAX_STEPS]
    if changed:
        why = f" (a run of {trainer.max_steps} steps never has this state)" if {*changed} == {MAX_STEPS} else ""
        raise UserError(
            f"{checkpoint}: a checkpoint of another run, {before['id']}: {_listed(changed)}{why}; give one of this run "
            "by resume=, or start over with resume=never."
        )
    if before["processes"] != now["processes"]:
        raise UserError(
            f"{checkpoint}: written by {before['processes']} processes, but this run has {now['processes']}, "
            f"so that its batches would differ; start {before['processes']} (torchrun --nproc-per-node), or "
            "start over with resume=never."
        )
    best = best_of(history, trainer.best if trainer.max_steps else "").step
    if best not in (None, step) and not is_complete(at_best := checkpoint_at(folder, best)):
        raise UserError(
            f"{at_best}: the best checkpoint so far, and it is not there whole; copy it there from where {checkpoint} "
            "comes from, or start over with resume=never."
        )


def _is_on_the_way(step: int, before: Mapping[str, Any], config: Config) -> bool:
    """Return whether a run of ``config`` also reaches this state, although its max_steps differs from ``before``."""
    # At step 0, of a run that trained nothing, there is no optimizer; warmup_ratio is a share of max_steps.
    if not step or config.trainer.schedule not in ENDLESS or config.trainer.warmup_ratio:
        return False
    every = config.trainer.eval_steps
    is_last = step == before.get("trainer", {}).get("max_steps", TrainerConfig.max_steps)
    # Every run evaluates at its last step, which draws random numbers and updates a plateau schedule.
    return not (is_last and every and step % every)


def check_start(checkpoint: Path, made_of: Mapping[str, str], bf16: bool) -> None:
    """Raise ``UserError`` for another tokenizer, other initial weights (name -> sha256), or another precision."""
    with one_line_when_edited(checkpoint, RUN):
        before = read_json(checkpoint / RUN)
        how = sha256_changes(before.get("made_of", made_of), made_of)
    if how:
        raise UserError(f"{checkpoint}: {how}; restore what it was trained with, or start over with resume=never.")
    if before.get("bf16", bf16) is not bf16:
        there, here = ("float32", "bfloat16") if bf16 else ("bfloat16", "float32")
        raise UserError(
            f"{checkpoint}: trained in {there}, and with trainer.bf16=auto this device computes in {here}; go on with "
            "such a device, or start over with resume=never."
        )


def _differences(before: Any, now: Any) -> dict[str, tuple[Any, Any]]:
    """Return name -> (before, now) of each setting that differs; a setting that is missing has its default."""
    old, new = ({name: value for name, value in leaves(each).items() if value != {}} for each in (before, now))
    return {name: (old.get(name), new.get(name)) for name in {*old, *new} if old.get(name) != new.get(name)}


def _listed(changed: Mapping[str, tuple[Any, Any]]) -> str:
    def shown(value: Any) -> str:
        return "its default" if value is None else value if isinstance(value, str) else json.dumps(value)

    return ", ".join(
        f"{name} is {shown(old)} there and {shown(new)} here" for name, (old, new) in sorted(changed.items())
    )


# ---- the weights that a run starts from


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


def base_for(config: Config) -> Path:
    """Return the checkpoint whose weights a run with ``base`` starts from: its own, or else a published one.

    UserError: there is no complete checkpoint at that step, or its run has another model, tokenizer or heads.
    """
    if not (checkpoint := find_base(config.base, Path(config.output_dir), BASES)):
        name, _, step = config.base.rpartition("@")
        folder = Path(config.output_dir) / name
        again = "remove its folder and train it again" if (folder / RECORD).is_file() else "train that run first"
        raise UserError(
            f"base={config.base}: there is no complete {checkpoint_at(folder, int(step))}; {again}, "
            f"with keep_steps=[{step}]. scripts/reproduce.py trains the bases of its tables itself."
        )
    with one_line_when_edited(checkpoint, RUN):
        before, now = map(_weights_of, (read_json(checkpoint / RUN)["config"], describe(config, "")["config"]))
    if changed := _differences(before, now):
        remedy = "name a run whose weights fit"
        if now["objective"] and not before["objective"]:
            remedy += f", or leave base= out and use model=hf model.path={checkpoint}, which adds the heads"
        raise UserError(f"base={config.base}: its run has other weights: {_listed(changed)}; {remedy}.")
    return checkpoint


def _weights_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide which weights there are; defaults are not stored."""
    objective = config.get("objective", {})
    named = ("name", "heads", "kind", "variant", "keep_depth") if objective.get("name") == "mtp" else ()
    heads = {key: objective[key] for key in named if key in objective}
    return {"model": config.get("model", {}), "tokenizer": config.get("tokenizer", {}), "objective": heads}


def remove_parts(folder: Path) -> None:
    """Remove the unfinished files of killed processes from a folder in which no other process is writing."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)
