"""What a record must be made of, whoever wrote the file: the kinds of its values, and what of it must fit together."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from ntl.config.identity import COMPUTED
from ntl.results.packing import PROBE, unpack_bits, unpack_errors

if TYPE_CHECKING:
    from ntl.results.record import RunRecord

DEEPEST = 20  # levels of what is free in its form; a config has five
LARGEST = 2**63
DIGITS = 10


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
    """A value of another kind; ``path`` are the keys that lead to it."""

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


def check_together(record: "RunRecord") -> None:
    """ValueError where parts of a record contradict each other, or its config cannot be that of a run."""
    _check_config(record.config)
    check("data.rows", record.data.get("rows", {}), dict[str, int])
    check("data.longer_than_train", record.data.get("longer_than_train", {}), dict[str, float])
    for name, points in record.curves.items():
        if not all(len(point) == 2 and point[0] is not None for point in points):
            raise ValueError(f"'curves.{name}' is no list of pairs [step, value]")
    rows = record.data.get("rows", {}).get("train", 0)
    if any(name.startswith(PROBE) for name in record.curves) and (rows < 1 or record.steps < 1):
        raise ValueError("a probe is told by epochs: 'steps' and 'data.rows.train' must be above 0")
    for split, whose in record.digit_histograms.items():
        for counts in (counts for places in whose.values() for counts in places.values()):
            if len(counts) != DIGITS or min(counts) < 0:
                raise ValueError(f"'digit_histograms.{split}' does not count {DIGITS} digits")
    for split, packed in record.correct.items():
        if (count := record.metrics.get(f"{split}/count")) is not None:
            if count < 0 or count != int(count):
                raise ValueError(f"'metrics.{split}/count' is {count}, not a whole number")
            unpack_bits(packed, int(count))
    for packed in record.errors.values():
        unpack_errors(packed)


def _check_config(config: Mapping[str, Any]) -> None:
    for key in (*COMPUTED, "decoding"):
        group = config.get(key, {})
        check(f"config.{key}", group, dict[str, Any])
        check(f"config.{key}.name", group.get("name", ""), str)
    check("config.loss.weight", config.get("loss", {}).get("weight"), float | None)
    check("config.beside", config.get("beside", {}), dict[str, dict[str, Any]])
