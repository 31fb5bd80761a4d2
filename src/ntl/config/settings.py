"""The fields of the settings dataclasses: default, meaning and limits, and how ``--help`` prints them.

Standard library only.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from textwrap import wrap
from typing import Any, get_args, get_type_hints

MISSING: Any = "???"  # as omegaconf.MISSING
COMPUTED = ("_target_", "contents")  # nobody sets these
TYPES = {int: "integer", float: "number", str: "text", list[str]: "list of text", list[int]: "list of integers"}
TYPES |= {list[float]: "list of numbers", dict[str, Any]: "settings by name"}


def setting(
    default: Any,
    meaning: str,
    /,
    *,
    unit: str = "",
    origin: str = "",
    min: float | None = None,
    max: float | None = None,
    above: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """A field of a settings dataclass.

    Args:
        default: Its default, or a function without arguments that makes it, such as ``list``.
        meaning: What it does, in one plain sentence.
        unit: What a number counts or measures.
        origin: Where the default comes from, if it is the paper's, the original code's or published.
        min, max, above: The limits of a number; both ``min`` and ``max`` are allowed values, ``above`` is not.
        choices: The texts that are allowed. ``ntl.config.legality`` checks these and the limits.
    """
    limits = {"min": min, "max": max, "above": above, "choices": choices or None}
    metadata = {"meaning": meaning, "unit": unit, "origin": origin}
    metadata |= {name: limit for name, limit in limits.items() if limit is not None}
    kind: Any = {"default_factory" if callable(default) else "default": default}
    return field(**kind, metadata=metadata)


@cache
def about(schema: type) -> dict[str, Mapping[str, Any]]:
    """What ``setting`` was told about each field; a field that replaces one without a word keeps what that was told."""
    found: dict[str, Mapping[str, Any]] = {}
    for base in reversed(schema.__mro__):
        for item in fields(base) if is_dataclass(base) else ():
            found[item.name] = item.metadata or {**found.get(item.name, {}), "origin": ""}
    return found


@dataclass(frozen=True)
class Described:
    """One setting as text. ``values`` is its type with its legal values."""

    name: str
    values: str
    default: str
    unit: str
    meaning: str
    origin: str


def describe(schema: type, path: str = "", current: Any = None) -> Iterator[Described]:
    """All settings of a schema, and of the schemas in it.

    Args:
        schema: A settings dataclass.
        path: What stands before each name, such as ``"trainer."``.
        current: An instance whose values are given in place of the defaults. A value that differs has no origin.
    """
    types, told = get_type_hints(schema), about(schema)
    for item in fields(schema):
        kind, known, name = types[item.name], told[item.name], f"{path}{item.name}"
        if item.name in COMPUTED or (not path and is_dataclass(kind)):  # at the top, a group
            continue
        default: Any = item.default_factory() if callable(item.default_factory) else item.default
        value = default if current is None else getattr(current, item.name)
        origin = known.get("origin", "") if value == default else ""
        yield Described(
            name, _values(kind, known), _text(value), known.get("unit", ""), known.get("meaning", ""), origin
        )
        if isinstance(kind, type) and is_dataclass(kind):
            yield from describe(kind, f"{name}.", value)


def _values(kind: Any, known: Mapping[str, Any]) -> str:
    options = [each for each in get_args(kind) if each is not type(None)]
    if type(None) in get_args(kind):
        return f"{_values(options[0], known)}, or null"
    if kind is bool:
        return "true, false"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(kind.__members__)
    if known.get("choices"):
        return ", ".join(known["choices"])
    limits = [
        f"{sign} {_text(known[name])}" for name, sign in (("above", ">"), ("min", "≥"), ("max", "≤")) if name in known
    ]
    return " ".join([TYPES.get(kind, "settings"), ", ".join(limits)]).strip()


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, float):
        return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:g}")
    if is_dataclass(value):
        return getattr(value, "_target_", "")
    return "" if value == MISSING else str(value) or '""'


def lines(settings: Sequence[Described]) -> Iterator[str]:
    """The settings as a terminal prints them: two lines or more for each."""
    for each in settings:
        number = " ".join(filter(None, [f"value {each.default}" if each.default else "", each.unit]))
        yield f"  {each.name}: {each.values}" + (f"; {number}" if number else "")
        origin = f" From: {each.origin}." if each.origin else ""
        yield from wrap(f"{each.meaning}{origin}", 100, initial_indent="      ", subsequent_indent="      ")


def quoted(word: str) -> str:
    """An override whose value is a template, in the quotation marks that Hydra needs and a shell takes away."""
    key, equals, value = word.partition("=")
    if not equals or not key.endswith(".template") or value[:1] in ("", "'", '"'):
        return word
    return f'{key}="{value.replace(chr(34), chr(92) + chr(34))}"'
