"""The field of a settings dataclass: its default, its meaning and its limits. Standard library only."""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any


def setting(default: Any, meaning: str, /, *, unit: str = "", origin: str = "", **limits: Any) -> Any:
    """A field of a settings dataclass, with all that ``--help GROUP`` and docs/configuration.md print about it.

    Args:
        default: Its default, or a function without arguments that makes it, such as ``list``.
        meaning: What it does, in one plain sentence.
        unit: What a number counts or measures.
        origin: Where the default comes from, if the paper, the original code or a publication has it.
        limits: ``min`` and ``max`` (both included) and ``above`` (excluded) of a number, ``choices`` of a text;
            ``ntl.config.legality`` checks them.
    """
    metadata = {"meaning": meaning, "unit": unit, "origin": origin, **limits}
    kind = "default_factory" if callable(default) else "default"
    return field(**{kind: default}, metadata=metadata)


def about(schema: type, name: str) -> Mapping[str, Any]:
    """What ``setting`` was told about a field: its own words, else those of the class that it replaces a field of.

    The origin is that of a default, so it is never inherited where the default is another.
    """
    own = next(each for each in fields(schema) if each.name == name)
    if own.metadata.get("meaning"):
        return own.metadata
    bases = [vars(base)["__dataclass_fields__"] for base in schema.__mro__ if "__dataclass_fields__" in vars(base)]
    told = [base[name].metadata for base in bases if name in base and base[name].metadata.get("meaning")]
    return {**(told[0] if told else {}), "origin": "", **own.metadata}
