"""Which checkpoint a run resumes or starts from, and whether it fits. Nothing here imports torch."""

import json
from collections.abc import Mapping
from hashlib import sha256
from operator import index
from pathlib import Path
from typing import Any

from ntl.config.trainer import TrainerConfig
from ntl.results.match import leaves
from ntl.results.record import RECORD
from ntl.runs.folder import (
    BASES,
    CHECKPOINTS,
    RUN,
    STATE,
    best_of,
    checkpoint_at,
    find_base,
    is_complete,
    latest_complete,
    processes,
    read_json,
    step_of,
)
from ntl.system.errors import UserError, one_line_when_edited
from ntl.system.files import sha256_changes
from ntl.system.messages import logger

# Schedules whose learning rate does not depend on the number of steps: max_steps only decides where they end.
ENDLESS = ("plateau", "constant")
MAX_STEPS = "trainer.max_steps"
SOURCE = Path(__file__).resolve().parents[1]
# Whose code decides what a run learns.
ROOMS = ("config", "data", "losses", "models", "numbers", "objectives", "tokenizers", "training")


# ---- where a run resumes


def describe(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a run, for its checkpoints: its id, the settings that decide its result, its number of ranks, its code.

    ``ntl.training.train`` adds ``made_of``, the sha256 of the tokenizer and of the weights that the run started from,
    and ``bf16``.
    """
    source = sha256()
    paths = (path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py")))
    for path in filter(Path.is_file, paths):
        source.update(f"{path.relative_to(SOURCE)}\n".encode() + path.read_bytes())
    described = {"id": name, "config": settings, "processes": processes(), "source": source.hexdigest()}
    # Through JSON, so that it compares equal to a description that was read back.
    return json.loads(json.dumps(described))


def checkpoint_for(resume: str, folder: Path, run: Mapping[str, Any], trainer: TrainerConfig) -> Path | None:
    """Return the checkpoint that the run of ``folder`` resumes from, or None if it starts from the beginning.

    Args:
        resume: The setting: auto, never, or a checkpoint.
        run: As of ``describe``.

    UserError: ``resume`` is not a complete checkpoint, or the checkpoint belongs to another run, was written by
    another number of processes, or the best one before it is not there.
    """
    if resume == "never":
        return None
    if resume == "auto":
        checkpoint, damaged = latest_complete(folder / CHECKPOINTS)
        for skipped in damaged:
            logger.warning(f"{skipped}: damaged or incomplete; skipped.")
    else:
        checkpoint = Path(resume)
        if not (is_complete(checkpoint) and (checkpoint / STATE).is_file()):  # published weights cannot be resumed
            raise UserError(f"resume={checkpoint}: no complete checkpoint; give one like outputs/ID/checkpoints/NAME.")
    if checkpoint:
        with one_line_when_edited(checkpoint, f"{STATE} or {RUN}"):
            _check_same_run(checkpoint, folder, run, trainer)
    return checkpoint


def _check_same_run(checkpoint: Path, folder: Path, now: Mapping[str, Any], trainer: TrainerConfig) -> None:
    state, before = read_json(checkpoint / STATE), read_json(checkpoint / RUN)
    step, history = index(state["global_step"]), state["log_history"]
    index(max((entry["step"] for entry in history), default=0))  # every entry has a step, an integer
    if step > trainer.max_steps:
        raise UserError(f"resume={checkpoint}: it already has {step} steps; set {MAX_STEPS} to {step} or more.")
    if step_of(checkpoint) not in (-1, step):
        raise UserError(f"{checkpoint}: its state is of step {step}; give the folder the name checkpoint-{step}.")
    changed = _differences(before["config"], now["config"])
    if MAX_STEPS in changed and _is_on_the_way(step, before["config"], trainer):
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
    if before.get("source", now["source"]) != now["source"]:
        logger.warning(f"The code of ntl is not what trained {checkpoint}; resume=never starts over with this one.")
    best = best_of(history, trainer.best if trainer.max_steps else "").step
    if best not in (None, step) and not is_complete(at_best := checkpoint_at(folder, best)):
        raise UserError(
            f"{at_best}: the best checkpoint so far, and it is not there whole; copy it there from where {checkpoint} "
            "comes from, or start over with resume=never."
        )


def _is_on_the_way(step: int, before: Mapping[str, Any], trainer: TrainerConfig) -> bool:
    """Return whether this training also reaches this state, although its max_steps differs from ``before``."""
    # At step 0, of a run that trained nothing, there is no optimizer; warmup_ratio is a share of max_steps.
    if not step or trainer.schedule not in ENDLESS or trainer.warmup_ratio:
        return False
    every = trainer.eval_steps
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
    old, new = ({name: value for name, value in leaves(of).items() if value != {}} for of in (before, now))
    return {name: (old.get(name), new.get(name)) for name in {*old, *new} if old.get(name) != new.get(name)}


def _listed(changed: Mapping[str, tuple[Any, Any]]) -> str:
    def shown(value: Any) -> str:
        return "its default" if value is None else value if isinstance(value, str) else json.dumps(value)

    return ", ".join(
        f"{name} is {shown(old)} there and {shown(new)} here" for name, (old, new) in sorted(changed.items())
    )


# ---- the weights that a run starts from


def base_for(base: str, outputs: Path, settings: Mapping[str, Any]) -> Path:
    """Return the checkpoint whose weights a run with these settings starts from: of ``outputs``, or a published one.

    UserError: there is no complete checkpoint at that step, or its run has another model, tokenizer or heads.
    """
    if not (checkpoint := find_base(base, outputs, BASES)):
        name, _, step = base.rpartition("@")
        folder = outputs / name
        again = "remove its folder and train it again" if (folder / RECORD).is_file() else "train that run first"
        raise UserError(
            f"base={base}: there is no complete {checkpoint_at(folder, int(step))}; {again}, "
            f"with keep_steps=[{step}]. scripts/reproduce.py trains the bases of its tables itself."
        )
    with one_line_when_edited(checkpoint, RUN):
        before, now = map(_weights_of, (read_json(checkpoint / RUN)["config"], settings))
    if changed := _differences(before, now):
        remedy = "name a run whose weights fit"
        if now["objective"] and not before["objective"]:
            remedy += f", or leave base= out and use model=hf model.path={checkpoint}, which adds the heads"
        raise UserError(f"base={base}: its run has other weights: {_listed(changed)}; {remedy}.")
    return checkpoint


def _weights_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide which weights there are; defaults are not stored."""
    objective = config.get("objective", {})
    named = ("name", "heads", "kind", "variant", "keep_depth") if objective.get("name") == "mtp" else ()
    heads = {key: objective[key] for key in named if key in objective}
    return {"model": config.get("model", {}), "tokenizer": config.get("tokenizer", {}), "objective": heads}
