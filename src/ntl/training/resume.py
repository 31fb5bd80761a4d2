"""Choice of the checkpoint that a run resumes from or starts from. Nothing here imports torch."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ntl.config import Config
from ntl.config.identity import deciding
from ntl.config.trainer import Schedule, TrainerConfig
from ntl.system.errors import UserError
from ntl.system.files import sha256_changes
from ntl.training.checkpoints import (
    BASES,
    CHECKPOINTS,
    RUN,
    STATE,
    checkpoint_at,
    find_base,
    is_whole,
    newest_whole,
    read_json,
    step_of,
)

# Schedules whose learning rate does not depend on the number of steps: max_steps only decides where they end.
ENDLESS = (Schedule.plateau, Schedule.constant)
MAX_STEPS = "trainer.max_steps"
SHOWN = 8  # settings that one error line lists


def processes() -> int:
    """Return the number of ranks: as many as torchrun started, otherwise one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def describe(config: Config, name: str) -> dict[str, Any]:
    """Describe a run, for its checkpoints: its id, all settings that affect its result, and its number of ranks.

    ``ntl.training.train`` adds ``made_of``, the sha256 of the tokenizer and of the weights that the run started from,
    and ``bf16``.
    """
    # Through JSON, so that it compares equal to a description that was read back.
    return json.loads(json.dumps({"id": name, "config": deciding(config), "processes": processes()}))


def checkpoint_for(config: Config, folder: Path, say: Callable[[str], None]) -> Path | None:
    """Return the checkpoint that the run of ``folder`` resumes from, or None if it starts from the beginning.

    Raises:
        UserError: ``config.resume`` is not a complete checkpoint, or the checkpoint belongs to another run or step, or
            it was written by another number of processes.
    """
    if config.resume == "never":
        return None
    if config.resume == "auto":
        checkpoint, damaged = newest_whole(folder / CHECKPOINTS)
        for each in damaged:
            say(f"{each}: damaged or incomplete; skipped.")
    else:
        checkpoint = Path(config.resume)
        if not (is_whole(checkpoint) and (checkpoint / STATE).is_file()):  # published weights cannot be resumed
            raise UserError(f"resume={checkpoint}: no complete checkpoint; give one like outputs/ID/checkpoints/NAME.")
        if (step := steps_taken(checkpoint)) > config.trainer.max_steps:
            raise UserError(f"resume={checkpoint}: it already has {step} steps; set {MAX_STEPS} to {step} or more.")
    if checkpoint:
        _check_same_run(checkpoint, config, folder.name)
    return checkpoint


def steps_taken(checkpoint: Path) -> int:
    """Return the optimizer steps of a complete checkpoint."""
    return int(read_json(checkpoint / STATE)["global_step"])


def base_for(config: Config) -> Path:
    """Return the checkpoint whose weights a run with ``base`` starts from: its own, or else a published one.

    Raises:
        UserError: There is no complete checkpoint at that step, or its run has another model, tokenizer or heads.
    """
    if not (checkpoint := find_base(config.base, Path(config.output_dir), BASES)):
        name, _, step = config.base.rpartition("@")
        folder = Path(config.output_dir) / name
        again = "remove its folder and train it again" if (folder / "record.json").is_file() else "train that run first"
        raise UserError(
            f"base={config.base}: there is no complete {checkpoint_at(folder, int(step))}; {again}, "
            f"with keep_steps=[{step}]. scripts/reproduce.py trains the bases of its tables itself."
        )
    before, now = (
        {**{key: values.get(key, {}) for key in ("model", "tokenizer")}, "objective": _heads(values)}
        for values in (read_json(checkpoint / RUN)["config"], describe(config, "")["config"])
    )
    if changed := _differences(before, now):
        remedy = "name a run whose weights fit"
        if now["objective"] and not before["objective"]:
            remedy += f", or leave base= out and use model=hf model.path={checkpoint}, which adds the heads"
        raise UserError(f"base={config.base}: its run has other weights: {_listed(changed)}; {remedy}.")
    return checkpoint


def _heads(config: Mapping[str, Any]) -> dict[str, Any]:
    # The settings of objective=mtp that decide which weights there are; defaults are not stored.
    objective = config.get("objective", {})
    named = ("name", "heads", "kind", "variant", "keep_depth") if objective.get("name") == "mtp" else ()
    return {key: objective[key] for key in named if key in objective}


def _check_same_run(checkpoint: Path, config: Config, name: str) -> None:
    before, now, step = read_json(checkpoint / RUN), describe(config, name), steps_taken(checkpoint)
    if step_of(checkpoint) not in (-1, step):
        raise UserError(f"{checkpoint}: its state is that of step {step}; give the folder the name checkpoint-{step}.")
    changed = _differences(before["config"], now["config"])
    if MAX_STEPS in changed and _is_on_the_way(step, before["config"], config):
        del changed[MAX_STEPS]
    if changed:
        why = f" (a run of {config.trainer.max_steps} steps never has this state)" if {*changed} == {MAX_STEPS} else ""
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


def _is_on_the_way(step: int, before: Mapping[str, Any], config: Config) -> bool:
    """Return whether a run of ``config`` also reaches this state, although its max_steps differs from ``before``."""
    if config.trainer.schedule not in ENDLESS or config.trainer.warmup_ratio:  # a share of max_steps
        return False
    if not step:  # of a run that trained nothing, and has no optimizer
        return False
    every = config.trainer.eval_steps
    is_last = step == before.get("trainer", {}).get("max_steps", TrainerConfig.max_steps)
    # Every run evaluates at its last step, which draws random numbers and updates a plateau schedule.
    return not (is_last and every and step % every)


def check_start(checkpoint: Path, made_of: Mapping[str, str], bf16: bool) -> None:
    """Raise ``UserError`` if tokenizer or initial weights (name -> sha256), or the precision, are not the checkpoint's.

    ``trainer.bf16=auto`` may mean something else on another device.
    """
    before = read_json(checkpoint / RUN)
    if how := sha256_changes(before.get("made_of", made_of), made_of):
        raise UserError(f"{checkpoint}: {how}; restore what it was trained with, or start over with resume=never.")
    if before.get("bf16", bf16) is not bf16:
        there, here = ("float32", "bfloat16") if bf16 else ("bfloat16", "float32")
        raise UserError(
            f"{checkpoint}: trained in {there}, and with trainer.bf16=auto this device computes in {here}; go on with "
            "such a device, or start over with resume=never."
        )


def _differences(before: Any, now: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Return name -> (before, now) of each setting that differs; a setting that is missing has its default."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return {} if before == now else {path: (before, now)}
    found: dict[str, tuple[Any, Any]] = {}
    for key in {*before, *now}:
        found |= _differences(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    return found


def _listed(changed: Mapping[str, tuple[Any, Any]]) -> str:
    def shown(value: Any) -> str:
        return "its default" if value is None else value if isinstance(value, str) else json.dumps(value)

    listed = [f"{name} is {shown(old)} there and {shown(new)} here" for name, (old, new) in sorted(changed.items())]
    more = [f"{len(listed) - SHOWN} more"] if len(listed) > SHOWN else []
    return ", ".join([*listed[:SHOWN], *more])
