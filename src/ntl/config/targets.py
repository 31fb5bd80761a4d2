"""From a dotted name in a config to a class or function, and checks of what a config may name.

A config is typed on a command line or read back from a run's folder, which may come from elsewhere. The rules are the
same for both: only code of this project is called, or what ``--config-dir`` names, and names are never paths.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import isclass, isfunction
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ntl.system.errors import UserError

if TYPE_CHECKING:
    import yaml

PACKAGE = "ntl"
# Setting -> the package that must define what it names: what a user adds goes there, too (docs/extending.md).
ROOMS = {
    "model._target_": "ntl.models",
    "dataset._target_": "ntl.data",
    "objective._target_": "ntl.training.objectives",
    "objective.collator": "ntl.data",
    "loss.base._target_": "ntl.losses",
    "loss.number._target_": "ntl.losses",
    "loss.cost._target_": "ntl.losses",
    "decoding._target_": "ntl.decoding",
    "tracking._target_": "ntl.training.tracking",
}
# Old module, or function, -> its present one: configs of old runs contain the old names.
MOVED = {
    **{
        f"ntl.data.{name}": f"ntl.data.sets.{name}"
        for name in ("arithmetic", "gsm8k", "mathematics", "multiplication", "multirc", "noisy_numbers", "rjokes")
    },
    "ntl.data.number_collate": "ntl.data.collate",
    "ntl.losses.cost": "ntl.losses.wasserstein",
    "ntl.models.gpt2.build": "ntl.models.causal.build_gpt2",
    "ntl.models.regression.build_gpt2": "ntl.models.causal.build_gpt2_regression",
    "ntl.models.regression.build_t5": "ntl.models.t5.build_regression",
    "ntl.training.objectives.masked_number": "ntl.training.objectives.number_heads",
    "ntl.training.objectives.regression": "ntl.training.objectives.number_heads",
}
# Settings that there are no more, as dotted keys such as "trainer.keep_best": stored configs still have them.
DROPPED: tuple[str, ...] = ()
# The keys whose values are dotted paths.
NAMING = ("_target_", "collator")
# Code of one's own that this process may call -> the file of ``--config-dir`` that names it (``ntl.config.own``).
own: dict[str, str] = {}
OWN_REMEDY = "put it there, or give the folder of your own configs that names it by --config-dir"
# Values in one file with its aliases expanded; the largest file of this project has some hundreds.
MAX_VALUES = 100_000
# Part of the name of a file or folder: no separator, and no leading dot, so that neither .. nor a hidden file is one.
NAME = re.compile(r"\w[\w.+=-]*", re.ASCII)


def check_target(target: str, room: str, where: str, remedy: str = "put it there") -> None:
    """UserError unless the dotted path begins with the package ``room``."""
    if not target.startswith(f"{room}."):
        raise UserError(f"{where}={target}: not in {room}, and code from elsewhere is never called; {remedy}.")


def check_name(name: str, where: str) -> str:
    """The name, if it can be part of a file's name; else a UserError, as for ``../x``."""
    if not NAME.fullmatch(name):
        raise UserError(f"{where}={name!r}: not a plain name of letters, digits and _ . + = - (it names files).")
    return name


def as_now(values: Any, path: str = "") -> Any:
    """The stored values of a config as today's version writes them.

    The class or function of every ``_target_`` and ``collator`` is named as now (``MOVED``), and what is in ``DROPPED``
    is left out, from the decodings in ``beside`` too. ``path`` is the dotted key of the values.
    """
    if isinstance(values, Mapping):
        inside = {key: f"{path}.{key}" if path else str(key) for key in values}
        if path == "beside":
            inside = dict.fromkeys(values, "decoding")
        return {key: as_now(each, inside[key]) for key, each in values.items() if inside[key] not in DROPPED}
    if isinstance(values, list):
        return [as_now(each) for each in values]
    if path.rpartition(".")[2] not in NAMING:
        return values
    target = MOVED.get(values, values)
    module, dot, name = str(target).rpartition(".")
    return f"{MOVED[module]}{dot}{name}" if module in MOVED else target


def check_plain(text: str, where: str) -> None:
    """Check YAML that was written by a run or by somebody else.

    UserError for an interpolation such as ``${oc.env:HOME}``, and for aliases that expand to more than ``MAX_VALUES``
    values or contain themselves. RecursionError where it is nested too deeply, YAMLError where it is not YAML.
    """
    if "${" in text:
        raise UserError(f"{where}: it has an interpolation, ${{...}}, which is not resolved here; write the value.")
    if "*" not in text:
        return
    import yaml  # here, as reporting a mistake must work without it

    # Reading expands aliases, and a few lines can expand to more than any memory holds.
    if _size(yaml.compose(text, yaml.SafeLoader), {}) > MAX_VALUES:
        raise UserError(
            f"{where}: its aliases (*name) unfold to more than {MAX_VALUES:,} values; write out what is meant."
        )


def _size(node: "yaml.Node | None", sizes: dict[int, float]) -> float:
    # An alias is the same object as its anchor: each node is visited once.
    parts = getattr(node, "value", None)
    if not isinstance(parts, list):  # a scalar's is its text
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # while its parts are counted: it may contain itself
        nodes = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        sizes[id(node)] = 1 + sum(_size(each, sizes) for each in nodes)
    return sizes[id(node)]


def read_yaml(path: Path) -> Any:
    """The lists, mappings and values of a YAML file, which ``check_plain`` accepts.

    UserError, in one line, for what cannot be read.
    """
    return parse_yaml(_text_of(path), str(path))


def read_own_yaml(path: Path) -> Any:
    """As ``read_yaml``, for a config that the user wrote: interpolations are left as they are."""
    import yaml

    try:
        return yaml.safe_load(_text_of(path))
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())[:300]}") from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())[:300]}") from error


def parse_yaml(text: str, where: str) -> Any:
    """As ``read_yaml``, for a text; ``where`` names its place in the UserError."""
    # Imported here: what reports a mistake must work without them.
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        check_plain(text, where)
        return OmegaConf.to_container(OmegaConf.create(text))
    except RecursionError as error:
        raise UserError(f"{where}: lists or mappings are nested too deeply to be read; write it flatter") from error
    except (YAMLError, ValueError, OmegaConfBaseException) as error:
        raise UserError(f"{where}: {' '.join(str(error).split())[:300]}") from error


def named_code(config: Any) -> Iterator[tuple[str, str, str]]:
    """Group, setting and dotted name of all code that a ``Config`` names; those of ``beside`` as decodings."""
    for group, path, value in _all_texts(config):
        if path.endswith("._target_") or path in ROOMS:
            yield group, path, value


def check_trust(config: Any) -> None:
    """UserError for a ``Config`` that names code outside ``ROOMS`` and ``own``, or whose names could be paths."""
    for _, path, value in named_code(config):
        if path not in ROOMS or value not in own:
            check_target(value, ROOMS.get(path, "no room for it"), path, OWN_REMEDY)
    for group, path, value in _all_texts(config):
        if path == f"{group}.name":
            check_name(value, path)
    for name in config.beside:
        check_name(name, "beside")


def _all_texts(config: Any) -> Iterator[tuple[str, str, str]]:
    parts = [(field.name, getattr(config, field.name)) for field in fields(config)]
    for group, part in [*parts, *(("decoding", reading) for reading in config.beside.values())]:
        yield from ((group, path, value) for path, value in _texts(part, group))


def _texts(part: Any, path: str) -> Iterator[tuple[str, str]]:
    if is_dataclass(part):
        for field in fields(part):
            yield from _texts(getattr(part, field.name), f"{path}.{field.name}")
    elif isinstance(part, str):
        yield path, part


def locate(target: str) -> Any:
    """The class or function at a dotted path, for example ``ntl.losses.ntl_was``.

    UserError unless this package defines it: ``ntl.system.machine.subprocess.run`` has a path through this package,
    but is not part of it. What ``own`` has may be defined anywhere.
    """
    if target in own:
        return _locate_own(target)
    check_target(target, PACKAGE, "_target_")
    try:
        found = resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"_target_ {target!r} cannot be imported: {str(error).splitlines()[0]}") from error
    if not (isclass(found) or isfunction(found)) or found.__module__.partition(".")[0] != PACKAGE:
        raise UserError(f"_target_ {target!r}: no class or function that {PACKAGE} defines.")
    return found


def _locate_own(target: str) -> Any:
    try:
        found = resolve_name(target)
    except Exception as error:  # whatever the user's module raises
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise UserError(f"_target_ {target!r} of {own[target]} cannot be imported: {why}") from error
    if not callable(found):
        raise UserError(f"_target_ {target!r} of {own[target]}: no class or function.")
    return found


def build(config: Any, **runtime: Any) -> Any:
    """Call the class or function named by ``config._target_`` with the config and values known at run time."""
    return locate(config._target_)(config, **runtime)
