"""Checks of parsed JSON, whoever wrote the file: the type of every value, and how deeply it is nested."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

DEEPEST = 20  # levels of nesting where the form is free; a config has five
LARGEST = 2**63


def _is_text(value: Any) -> bool:
    # JSON can escape half of a surrogate pair, which no file and no terminal takes.
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value))


def printable(text: str) -> str:
    """The text with half surrogate pairs as their escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False


KINDS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    str: (_is_text, "a text"),
    int: (_is_whole, "a whole number"),
    float: (_is_number, "a number"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    NoneType: (lambda value: value is None, "null"),
    dict: (lambda value: isinstance(value, dict), "a mapping"),
    list: (lambda value: isinstance(value, list), "a list"),
}


class Wrong(ValueError):
    """A value of a wrong type; ``path`` lists the keys that lead to it."""

    def __init__(self, value: Any, wanted: str) -> None:
        self.path = list[str]()
        self.what = f"{json.dumps(value)[:40]}, not {wanted}"

    def __str__(self) -> str:
        return f"'{'.'.join(self.path)}' is {self.what}"


def check(name: str, value: Any, kind: Any, depth: int = 0) -> None:
    """``Wrong`` where parsed JSON is not of ``kind``, an annotation such as ``dict[str, float | None]`` or ``Any``."""
    try:
        _check(value, kind, depth)
    except Wrong as error:
        error.path.insert(0, name)
        raise


def _check(value: Any, kind: Any, depth: int) -> None:
    if isinstance(kind, UnionType):
        if value is None:
            return
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    if kind is Any:
        # A whole number that is free in its form may be as large as a float.
        kind = {dict: dict[str, Any], list: list[Any], int: float}.get(type(value), type(value))
    origin = get_origin(kind) or kind
    origin = {Mapping: dict, Sequence: list}.get(origin, origin)
    fits, words = KINDS[origin]
    if not fits(value):
        raise Wrong(value, words)
    if depth > DEEPEST:
        raise Wrong("...", f"within {DEEPEST} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            check(key, key, str, depth + 1)
            check(key, item, get_args(kind)[1], depth + 1)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            check(str(place), item, get_args(kind)[0], depth + 1)
