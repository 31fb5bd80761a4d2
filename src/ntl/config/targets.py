"""What a config may name, whoever wrote it: code of this project, and files below the folders that were given.

A config is typed on a command line, but it is also read back from a run's folder, which may come from elsewhere. The
rules are the same for both, so that nothing depends on where a config came from.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import isclass, isfunction
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ntl.system.errors import UserError

if TYPE_CHECKING:
    import yaml

PACKAGE = "ntl"
# Where what a setting names must be defined: what a user adds goes there, too (docs/extending.md).
ROOMS = {
    "model._target_": "ntl.models",
    "dataset._target_": "ntl.data",
    "objective._target_": "ntl.training.objectives",
    "objective.collator": "ntl.data",
    "loss.base._target_": "ntl.losses",
    "loss.number._target_": "ntl.losses",
    "loss.cost._target_": "ntl.losses",
    "decoding._target_": "ntl.decoding",
}
# Module -> where what it defined is now: what a run wrote keeps the name of its day.
MOVED = {
    "ntl.losses.cost": "ntl.losses.wasserstein",
    "ntl.training.objectives.masked_number": "ntl.training.objectives.number_heads",
    "ntl.training.objectives.regression": "ntl.training.objectives.number_heads",
}
# Values in one file, once its aliases are written out; the largest of ours has some hundreds.
UNFOLDED = 100_000
# Part of the name of a file or folder: no separator, and no leading dot, so that neither .. nor a hidden file is one.
NAME = re.compile(r"\w[\w.+=-]*", re.ASCII)


def check_target(target: str, room: str, where: str) -> None:
    """UserError unless the dotted path begins with the package ``room``."""
    if not target.startswith(f"{room}."):
        raise UserError(f"{where}={target}: not in {room}, and code from elsewhere is never called; put it there.")


def check_name(name: str, where: str) -> str:
    """The name, if it can be part of a file's name; else a UserError, as for ``../x``."""
    if not NAME.fullmatch(name):
        raise UserError(f"{where}={name!r}: not a plain name of letters, digits and _ . + = - (it names files).")
    return name


def as_now(values: Any) -> Any:
    """The stored values of a config with every ``_target_`` as it is called now."""
    if isinstance(values, Mapping):
        return {key: _as_now(each) if key == "_target_" else as_now(each) for key, each in values.items()}
    return [as_now(each) for each in values] if isinstance(values, list) else values


def _as_now(target: Any) -> Any:
    module, dot, name = str(target).rpartition(".")
    return f"{MOVED[module]}{dot}{name}" if module in MOVED else target


def check_plain(text: str, where: str) -> None:
    """For YAML that was written by a run or by somebody else.

    UserError for an interpolation, as ``${oc.env:HOME}``, and for aliases that unfold to more than ``UNFOLDED`` values
    or hold themselves. RecursionError where it is nested too deeply, YAMLError where it is no YAML.
    """
    if "${" in text:
        raise UserError(f"{where}: it has an interpolation, ${{...}}, which is not resolved here; write the value.")
    # Reading makes a tree of what the aliases mean: a few lines can mean more than any memory holds.
    if "*" in text and _meant(text) > UNFOLDED:
        raise UserError(
            f"{where}: its aliases (*name) unfold to more than {UNFOLDED:,} values; write out what is meant."
        )


def _meant(text: str) -> float:
    # Imported here: what reports a mistake must work without it.
    import yaml

    return _unfolded(yaml.compose(text, yaml.SafeLoader), {})


def _unfolded(node: "yaml.Node | None", sizes: dict[int, float]) -> float:
    # An alias is the very node of its anchor: each is looked at once, however often it is meant.
    parts = getattr(node, "value", None)
    if not isinstance(parts, list):  # a scalar's is its text
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # until its parts are known: it may be one of them
        nodes = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        sizes[id(node)] = 1 + sum(_unfolded(each, sizes) for each in nodes)
    return sizes[id(node)]


def check_trust(config: Any) -> None:
    """UserError, one line, for a ``Config`` that names code outside ``ROOMS``, or a file outside its folder."""
    parts = [(field.name, getattr(config, field.name)) for field in fields(config)]
    parts += [("decoding", reading) for reading in config.beside.values()]
    for group, part in parts:
        for path, value in _texts(part, group):
            if path.endswith("._target_") or path in ROOMS:
                check_target(value, ROOMS.get(path, "no room for it"), path)
            elif path == f"{group}.name":
                check_name(value, path)
    for name in config.beside:
        check_name(name, "beside")


def _texts(part: Any, path: str) -> Iterator[tuple[str, str]]:
    if is_dataclass(part):
        for field in fields(part):
            yield from _texts(getattr(part, field.name), f"{path}.{field.name}")
    elif isinstance(part, str):
        yield path, part


def locate(target: str) -> Any:
    """The class or function at a dotted path, for example ``ntl.losses.ntl_was``.

    UserError unless it is one that this package defines: a module of ours imports others, and what they hold, such as
    ``subprocess.run``, has a path through it as well.
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
    """Call the class or function named by ``config._target_`` with the config and what only the run knows."""
    return locate(config._target_)(config, **runtime)
