"""The checkpoint that a run continues from, if it is one of this run. torch is not needed to tell."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ntl.config import Config
from ntl.config.identity import deciding
from ntl.config.trainer import Schedule, TrainerConfig
from ntl.system.errors import UserError
from ntl.training.checkpoints import CHECKPOINTS, checkpoint_at, is_whole, newest_whole, read_run, steps_taken

# Of these the number of steps decides nothing but the end.
ENDLESS = (Schedule.plateau, Schedule.constant)
MAX_STEPS = "trainer.max_steps"
# As many settings as one line can tell.
SHOWN = 8


def processes() -> int:
    """Of this run: as many as torchrun started, else one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def describe(config: Config, name: str) -> dict[str, Any]:
    """The run that a checkpoint is of: its id, all settings that decide its result, and its processes.

    ``ntl.training.parts`` adds ``made_of``, the sha256 of the tokenizer and of the weights that it began from.
    """
    # As JSON gives it back.
    return json.loads(json.dumps({"id": name, "config": deciding(config), "processes": processes()}))


def checkpoint_for(config: Config, folder: Path, say: Callable[[str], None]) -> Path | None:
    """What the run of ``folder`` continues from; None where it begins.

    UserError: ``config.resume`` is no whole checkpoint, or what was found is another run's, or was taken by another
    number of processes.
    """
    if config.resume == "never":
        return None
    checkpoint = _newest(folder / CHECKPOINTS, say) if config.resume == "auto" else _named(config)
    if checkpoint:
        _check_own(checkpoint, config, folder, say)
    return checkpoint


def base_for(config: Config) -> Path:
    """The checkpoint that a run with ``base`` begins from.

    UserError: it is not there whole, or its run has another model or tokenizer.
    """
    name, _, step = config.base.rpartition("@")
    folder = Path(config.output_dir) / name
    checkpoint = checkpoint_at(folder, int(step))
    if not is_whole(checkpoint):
        again = "remove its folder and train it again" if (folder / "record.json").is_file() else "train that run first"
        raise UserError(
            f"base={config.base}: there is no whole {checkpoint}; {again}, with keep_steps=[{step}]. "
            "scripts/reproduce.py makes the bases of its tables itself."
        )
    before, now = read_run(checkpoint).get("config", {}), describe(config, "")["config"]
    changed = {key: _differing(before.get(key), now.get(key), key) for key in ("model", "tokenizer")}
    for key, settings in changed.items():
        if settings:
            how = ", ".join(f"{name} is {old} there and {new} here" for name, (old, new) in sorted(settings.items()))
            raise UserError(f"base={config.base}: a run with another {key}: {how}; name one whose weights fit.")
    return checkpoint


def _newest(folder: Path, say: Callable[[str], None]) -> Path | None:
    checkpoint, damaged = newest_whole(folder)
    for each in damaged:
        say(f"{each}: damaged or unfinished, left aside.")
    return checkpoint


def _named(config: Config) -> Path:
    folder = Path(config.resume)
    if not is_whole(folder):
        raise UserError(f"resume={folder}: no whole checkpoint; give one like outputs/ID/checkpoints/checkpoint-500.")
    if (step := steps_taken(folder)) > config.trainer.max_steps:
        raise UserError(f"resume={folder}: {step} steps are taken already; set {MAX_STEPS} to that or more.")
    return folder


def _check_own(checkpoint: Path, config: Config, folder: Path, say: Callable[[str], None]) -> None:
    before, now = read_run(checkpoint), describe(config, folder.name)
    if not before:
        if checkpoint.resolve().parent != (folder / CHECKPOINTS).resolve():
            raise UserError(
                f"resume={checkpoint}: it does not say of which run it is; move it into {folder / 'checkpoints'} if it "
                "is of this one, and leave resume out."
            )
        say(f"{checkpoint}: it does not say of which run it is; taken for one of this run, in whose folder it lies.")
        return
    changed = _differing(before["config"], now["config"])
    if MAX_STEPS in changed and _passes(checkpoint, before["config"], config):
        del changed[MAX_STEPS]
    if changed:
        told = [f"{name} is {old} there and {new} here" for name, (old, new) in sorted(changed.items())]
        more = [f"{len(told) - SHOWN} more"] if len(told) > SHOWN else []
        only = {*changed} == {MAX_STEPS}
        why = f" (a run of {config.trainer.max_steps} steps does not come through it)" if only else ""
        raise UserError(
            f"{checkpoint}: a checkpoint of another run, {before.get('id')}: {', '.join([*told[:SHOWN], *more])}{why}; "
            "give one of this run by resume=, or begin anew with resume=never."
        )
    if before.get("processes") != now["processes"]:
        raise UserError(
            f"{checkpoint}: taken by {before.get('processes')} processes, and this is a run of {now['processes']}, "
            f"whose batches are others; start {before.get('processes')} (torchrun --nproc-per-node), or begin anew "
            "with resume=never."
        )


def _passes(checkpoint: Path, before: Mapping[str, Any], config: Config) -> bool:
    """Whether a run of as many steps as ``config`` has comes through this state of a run of ``before``'s."""
    if config.trainer.schedule not in ENDLESS:
        return False
    step, every = steps_taken(checkpoint), config.trainer.eval_steps
    trainer = before.get("trainer")
    is_last = not isinstance(trainer, dict) or step == trainer.get("max_steps", TrainerConfig.max_steps)
    # A run evaluates at its end in any case, which draws random numbers and moves a plateau.
    return not (is_last and every and step % every)


def check_made_of(checkpoint: Path, now: Mapping[str, str]) -> None:
    """UserError where the run's tokenizer or first weights (name -> sha256) are not those of the checkpoint."""
    before = read_run(checkpoint).get("made_of", now)
    if changed := [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]:
        how = ", ".join(f"{name} had sha256 {before.get(name)} and has {now.get(name)}" for name in changed)
        raise UserError(f"{checkpoint}: {how}; restore what it was trained with, or begin anew with resume=never.")


def _differing(before: Any, now: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Name -> (before, now) of each setting that is not the same; one that is left out has its default."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return {} if before == now else {path: (_told(before), _told(now))}
    found: dict[str, tuple[Any, Any]] = {}
    for key in {*before, *now}:
        found |= _differing(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    return found


def _told(value: Any) -> str:
    return "its default" if value is None else value if isinstance(value, str) else json.dumps(value)
