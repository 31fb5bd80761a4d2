"""From a dotted name in a config to a class or function. Only code of this project is called; names are never paths."""

import re
from inspect import isclass, isfunction
from pkgutil import resolve_name
from typing import Any

from ntl.system.errors import UserError

PACKAGE = "ntl"
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


def locate(target: str) -> Any:
    """The class or function at a dotted path, for example ``ntl.losses.ntl_was``.

    UserError unless this package defines it, as it does not define ``ntl.training.train.subprocess.run``.
    """
    check_target(target, PACKAGE, "_target_")
    try:
        defined = resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"_target_ {target!r} cannot be imported: {str(error).splitlines()[0]}") from error
    if not (isclass(defined) or isfunction(defined)) or defined.__module__.partition(".")[0] != PACKAGE:
        raise UserError(f"_target_ {target!r}: no class or function that {PACKAGE} defines.")
    return defined


def build(config: Any, **runtime: Any) -> Any:
    """Call the class or function named by ``config._target_`` with the config and values known at run time."""
    return locate(config._target_)(config, **runtime)
