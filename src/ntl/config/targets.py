"""From a dotted name in a config to a class or function. Only code of this project is called; names are never paths."""

import re
from collections.abc import Mapping
from inspect import isclass, isfunction
from pkgutil import resolve_name
from typing import Any

from ntl.config.settings import nested
from ntl.system.errors import UserError

PACKAGE = "ntl"
# Setting -> the package that must define what it names: what a user adds goes there, too (docs/extending.md).
ROOMS = {
    "model._target_": "ntl.models",
    "dataset._target_": "ntl.data",
    "objective._target_": "ntl.objectives",
    "objective.collator": "ntl.data",
    "loss.base._target_": "ntl.losses",
    "loss.number._target_": "ntl.losses",
    "loss.cost._target_": "ntl.losses",
    "decoding._target_": "ntl.decoding",
}
# A pattern of old dotted paths -> the present one: configs of old runs contain the old names.
MOVED = {
    r"ntl\.data\.(sets\.)?(polynomial|star_graph|induction|key_values|needle)\.": "ntl.data.sets.generated.",
    r"ntl\.data\.(sets\.)?arithmetic\.|ntl\.data\.mathematics\.": "ntl.data.sets.mathematics.",
    r"ntl\.data\.(multiplication|noisy_numbers)\.": r"ntl.data.sets.\1.",
    r"ntl\.data\.(sets\.)?(gsm8k|multirc|rjokes|packaged)\.": "ntl.data.sets.official.",
    r"ntl\.data\.number_collate\.": "ntl.data.collate.",
    r"ntl\.models\.(causal|gpt2|t5)\.build$": r"ntl.models.pretrained.build_\1",
    r"ntl\.models\.causal\.": "ntl.models.pretrained.",
    r"ntl\.models\.regression\.(build_\w+)": r"ntl.models.pretrained.\1_regression",
    r"ntl\.training\.objectives\.(mtp|next_token)\.": r"ntl.objectives.\1.",
    r"ntl\.training\.objectives\.(masked_number|regression)\.": "ntl.objectives.number_heads.",
}
# Withdrawn settings, as dotted keys such as "trainer.keep_best": stored configs still have them.
DROPPED: tuple[str, ...] = ("code", "tracking._target_", "tokenizer.max_place")
# The keys whose values are dotted paths.
NAMING = ("_target_", "collator")
# Part of the name of a file or folder: no separator, and no leading dot, so that neither .. nor a hidden file is one.
NAME = re.compile(r"\w[\w.+=-]*", re.ASCII)


def check_target(target: str, room: str, where: str) -> None:
    """UserError unless the dotted path begins with the package ``room``."""
    if not target.startswith(f"{room}."):
        raise UserError(f"{where}={target}: not in {room}, and code from elsewhere is never called; put it there.")


def check_name(name: str, where: str) -> None:
    """UserError unless the name can be part of a file's name, as ``../x`` cannot."""
    if not NAME.fullmatch(name):
        raise UserError(f"{where}={name!r}: not a plain name of letters, digits and _ . + = - (it names files).")


def migrate_targets(values: Any, path: str = "") -> Any:
    """The stored values of a config as today's version writes them: by ``MOVED``, and without what is in ``DROPPED``.

    ``path`` is the dotted key of the values; that of a decoding in ``beside`` is that of the run's own.
    """
    if isinstance(values, Mapping):
        inside = {key: "decoding" if path == "beside" else f"{path}.{key}".lstrip(".") for key in values}
        return {key: migrate_targets(each, inside[key]) for key, each in values.items() if inside[key] not in DROPPED}
    if isinstance(values, list):
        return [migrate_targets(each) for each in values]
    if path.rpartition(".")[2] not in NAMING:
        return values
    return next((re.sub(old, now, values) for old, now in MOVED.items() if re.match(old, values)), values)


def check_trust(config: Any) -> None:
    """UserError for a ``Config`` that names code outside ``ROOMS``, or whose names could be paths."""
    for path, part in nested(config):
        for key, value in vars(part).items():
            where = f"decoding.{key}" if path.startswith("beside.") else f"{path}{key}"
            if room := ROOMS.get(where):
                check_target(value, room, where)
            elif key == "name":
                check_name(value, where)
    for name in config.beside:
        check_name(name, "beside")


def locate(target: str) -> Any:
    """The class or function at a dotted path, for example ``ntl.losses.ntl_was``.

    UserError unless this package defines it, as it does not define ``ntl.system.machine.subprocess.run``.
    """
    check_target(target, PACKAGE, "_target_")
    try:
        found = resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"_target_ {target!r} cannot be imported: {str(error).splitlines()[0]}") from error
    if not (isclass(found) or isfunction(found)) or found.__module__.partition(".")[0] != PACKAGE:
        raise UserError(f"_target_ {target!r}: no class or function that {PACKAGE} defines.")
    return found


def build(config: Any, **runtime: Any) -> Any:
    """Call the class or function named by ``config._target_`` with the config and values known at run time."""
    return locate(config._target_)(config, **runtime)
