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
    checkpoint_at,
    find_base,
    is_whole,
    newest_whole,
    read_run,
    steps_taken,
)

# Schedules whose learning rate does not depend on the number of steps: max_steps only decides where they end.
ENDLESS = (Schedule.plateau, Schedule.constant)
MAX_STEPS = "trainer.max_steps"
NO_HEADS = "no heads for multi-token prediction"
SHOWN = 8  # settings that one error line lists


def processes() -> int:
    """Return the number of ranks: as many as torchrun started, otherwise one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def describe(config: Config, name: str) -> dict[str, Any]:
    """Describe a run, for its checkpoints: its id, all settings that affect its result, and its number of ranks.

    ``ntl.training.runner`` adds ``made_of``, the sha256 of the tokenizer and of the weights that the run started from.
    """
    # Through JSON, so that it compares equal to a description that was read back.
    return json.loads(json.dumps({"id": name, "config": deciding(config), "processes": processes()}))


def checkpoint_for(config: Config, folder: Path, say: Callable[[str], None]) -> Path | None:
    """Return the checkpoint that the run of ``folder`` resumes from, or None if it starts from the beginning.

    Raises:
        UserError: ``config.resume`` is not a complete checkpoint, or the checkpoint belongs to another run, or it was
            written by another number of processes.
    """
    if config.resume == "never":
        return None
    checkpoint = _newest_checkpoint(folder / CHECKPOINTS, say) if config.resume == "auto" else _named_checkpoint(config)
    if checkpoint:
        _check_same_run(checkpoint, config, folder, say)
    return checkpoint


def base_for(config: Config) -> Path:
    """Return the checkpoint whose weights a run with ``base`` starts from: its own, or else a published one.

    Raises:
        UserError: There is no complete checkpoint at that step, or its run has another model or tokenizer.
    """
    if not (checkpoint := find_base(config.base, Path(config.output_dir), BASES)):
        name, _, step = config.base.rpartition("@")
        folder = Path(config.output_dir) / name
        again = "remove its folder and train it again" if (folder / "record.json").is_file() else "train that run first"
        raise UserError(
            f"base={config.base}: there is no complete {checkpoint_at(folder, int(step))}; {again}, "
            f"with keep_steps=[{step}]. scripts/reproduce.py trains the bases of its tables itself."
        )
    before, now = read_run(checkpoint).get("config", {}), describe(config, "")["config"]
    changed = {key: _differences(before.get(key), now.get(key), key) for key in ("model", "tokenizer")}
    for key, settings in changed.items():
        if settings:
            how = ", ".join(f"{name} is {old} there and {new} here" for name, (old, new) in sorted(settings.items()))
            raise UserError(f"base={config.base}: its run has another {key}: {how}; name a run whose weights fit.")
    theirs, ours = (_heads(each.get("objective", {})) for each in (before, now))
    if theirs != ours:
        remedy = "name a run with the same heads"
        if not theirs:
            remedy += f", or leave base= out and use model=hf model.path={checkpoint}, which adds the heads"
        raise UserError(f"base={config.base}: its run has {theirs or NO_HEADS}, this one {ours or NO_HEADS}; {remedy}.")
    return checkpoint


def _heads(objective: Mapping[str, Any]) -> str:
    # The settings of objective=mtp that decide which weights there are; defaults are not stored.
    named = {key: objective[key] for key in ("heads", "kind", "variant", "keep_depth") if key in objective}
    settings = [f"objective.{key}={str(value).lower()}" for key, value in named.items()]
    return " ".join(["objective=mtp", *settings]) if objective.get("name") == "mtp" else ""


def _newest_checkpoint(folder: Path, say: Callable[[str], None]) -> Path | None:
    checkpoint, damaged = newest_whole(folder)
    for each in damaged:
        say(f"{each}: damaged or incomplete; skipped.")
    return checkpoint


def _named_checkpoint(config: Config) -> Path:
    folder = Path(config.resume)
    if not is_whole(folder):
        raise UserError(
            f"resume={folder}: no complete checkpoint; give one like outputs/ID/checkpoints/checkpoint-500."
        )
    if (step := steps_taken(folder)) > config.trainer.max_steps:
        raise UserError(f"resume={folder}: it already has {step} steps; set {MAX_STEPS} to {step} or more.")
    return folder


def _check_same_run(checkpoint: Path, config: Config, folder: Path, say: Callable[[str], None]) -> None:
    before, now = read_run(checkpoint), describe(config, folder.name)
    if not before:
        if checkpoint.resolve().parent != (folder / CHECKPOINTS).resolve():
            raise UserError(
                f"resume={checkpoint}: does not say which run it belongs to; if it belongs to this one, move it into "
                f"{folder / 'checkpoints'} and leave resume out."
            )
        say(f"{checkpoint}: does not say which run it belongs to; assuming this run, because it is in its folder.")
        return
    changed = _differences(before["config"], now["config"])
    if MAX_STEPS in changed and _is_on_the_way(checkpoint, before["config"], config):
        del changed[MAX_STEPS]
    if changed:
        listed = [f"{name} is {old} there and {new} here" for name, (old, new) in sorted(changed.items())]
        more = [f"{len(listed) - SHOWN} more"] if len(listed) > SHOWN else []
        only = {*changed} == {MAX_STEPS}
        why = f" (a run of {config.trainer.max_steps} steps never has this state)" if only else ""
        raise UserError(
            f"{checkpoint}: a checkpoint of another run, {before.get('id')}: {', '.join([*listed[:SHOWN], *more])}"
            f"{why}; give one of this run by resume=, or start over with resume=never."
        )
    if before.get("processes") != now["processes"]:
        raise UserError(
            f"{checkpoint}: written by {before.get('processes')} processes, but this run has {now['processes']}, "
            f"so that its batches would differ; start {before.get('processes')} (torchrun --nproc-per-node), or "
            "start over with resume=never."
        )


def _is_on_the_way(checkpoint: Path, before: Mapping[str, Any], config: Config) -> bool:
    """Return whether a run of ``config`` also reaches this state, although its max_steps differs from ``before``."""
    if config.trainer.schedule not in ENDLESS or config.trainer.warmup_ratio:  # a share of max_steps
        return False
    step, every = steps_taken(checkpoint), config.trainer.eval_steps
    if not step:  # of a run that trained nothing, and has no optimizer
        return False
    trainer = before.get("trainer")
    is_last = not isinstance(trainer, dict) or step == trainer.get("max_steps", TrainerConfig.max_steps)
    # Every run evaluates at its last step, which draws random numbers and updates a plateau schedule.
    return not (is_last and every and step % every)


def check_made_of(checkpoint: Path, now: Mapping[str, str]) -> None:
    """Raise ``UserError`` if the tokenizer or the initial weights (name -> sha256) are not those of the checkpoint."""
    if how := sha256_changes(read_run(checkpoint).get("made_of", now), now):
        raise UserError(f"{checkpoint}: {how}; restore what it was trained with, or start over with resume=never.")


def check_bf16(checkpoint: Path, now: bool) -> None:
    """Raise ``UserError`` if ``trainer.bf16=auto`` meant something else on the device of the checkpoint."""
    if read_run(checkpoint).get("bf16", now) is not now:
        there, here = ("float32", "bfloat16") if now else ("bfloat16", "float32")
        raise UserError(
            f"{checkpoint}: trained in {there}, and with trainer.bf16=auto this device computes in {here}; go on with "
            "such a device, or start over with resume=never."
        )


def _differences(before: Any, now: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Return name -> (before, now) of each setting that differs; a setting that is missing has its default."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return {} if before == now else {path: (_shown(before), _shown(now))}
    found: dict[str, tuple[Any, Any]] = {}
    for key in {*before, *now}:
        found |= _differences(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    return found


def _shown(value: Any) -> str:
    return "its default" if value is None else value if isinstance(value, str) else json.dumps(value)
