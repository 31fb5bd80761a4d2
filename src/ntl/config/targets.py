"""From a dotted name in a config to a class or function. Only code of this project is called; names are never paths."""

import re
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
    "decoding._target_": "ntl.decoding",
}
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


def check_trust(config: Any) -> None:
    """UserError for a ``Config`` that names code outside ``ROOMS``, or whose names could be paths."""
    for path, part in nested(config):
        for key, value in vars(part).items():
            where = f"decoding.{key}" if path.startswith("extra_decodings.") else f"{path}{key}"
            if room := ROOMS.get(where):
                check_target(value, room, where)
            elif key == "name":
                check_name(value, where)
    for name in config.extra_decodings:
        check_name(name, "extra_decodings")


def locate(target: str) -> Any:
    """The class or function at a dotted path, for example ``ntl.losses.ntl_was``.

    UserError unless this package defines it, as it does not define ``ntl.training.train.subprocess.run``.
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
