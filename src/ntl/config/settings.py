"""What a settings dataclass says of its fields, as ``--help`` prints them, and what a mistyped name may mean.

Standard library only.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from functools import cache
from operator import ge, gt, le
from textwrap import wrap
from typing import Any, get_args, get_type_hints

MISSING: Any = "???"  # as omegaconf.MISSING
COMPUTED = ("_target_", "contents")  # nobody sets these
TYPES = {int: "integer", float: "number", str: "text", list[str]: "list of text", list[int]: "list of integers"}
TYPES |= {list[float]: "list of numbers", dict[str, Any]: "settings by name"}
# Limit -> its sign, its words, and whether a value holds to it.
LIMITS: Any = {"min": ("≥", "at least", ge), "above": (">", "above", gt), "max": ("≤", "at most", le)}


def setting(
    default: Any,
    meaning: str,
    unit: str = "",
    *,
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
        min, max, above, choices: What is allowed, ``above`` itself not; ``ntl.config.validation`` checks it.
    """
    told = {"meaning": meaning, "unit": unit, "origin": origin, "min": min, "max": max, "above": above}
    told = {name: value for name, value in {**told, "choices": choices}.items() if value not in (None, "", ())}
    kind: Any = {"default_factory" if callable(default) else "default": default}
    return field(**kind, metadata=told)


def setting_names(schema: type) -> list[str]:
    """The keys of a schema that a user may set."""
    return [item.name for item in fields(schema) if item.name not in COMPUTED]


@cache
def about(schema: type) -> dict[str, Mapping[str, Any]]:
    """What ``setting`` was told about each field; a field that replaces one without a word keeps what that was told."""
    found: dict[str, Mapping[str, Any]] = {}
    for base in reversed(schema.__mro__):
        for item in fields(base) if is_dataclass(base) else ():
            found[item.name] = item.metadata or {**found.get(item.name, {}), "origin": ""}
    return found


def nested(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A config and each dataclass in it, with what stands before the names of its settings, such as ``"model.lora."``.

    A decoding in ``extra_decodings`` is one of them.
    """
    if isinstance(config, dict):
        for key, value in config.items():
            yield from nested(value, f"{path}{key}.")
    elif is_dataclass(config):
        yield path, config
        for item in fields(config):
            yield from nested(getattr(config, item.name), f"{path}{item.name}.")


def describe(schema: type, path: str = "", current: Any = None) -> Iterator[tuple[str, list[str]]]:
    """The name and the printed lines of each setting of a schema, and of the schemas in it.

    ``path`` stands before each name, such as ``"trainer."``. ``current`` is an instance whose values are given in place
    of the defaults; a value that differs has no origin.
    """
    types = get_type_hints(schema)
    for item in fields(schema):
        kind, told, name = types[item.name], about(schema)[item.name], f"{path}{item.name}"
        if item.name in COMPUTED or (not path and is_dataclass(kind)):  # at the top, a group
            continue
        default: Any = item.default_factory() if callable(item.default_factory) else item.default
        value = default if current is None else getattr(current, item.name)
        shown = [f"value {text_of(value)}" if text_of(value) else "", told.get("unit", "")]
        origin = f" From: {told['origin']}." if told.get("origin") and value == default else ""
        first = "; ".join(filter(None, [f"  {name}: {_values(kind, told)}", " ".join(filter(None, shown))]))
        yield name, [first, *(f"      {line}" for line in wrap(f"{told.get('meaning', '')}{origin}", 94))]
        if isinstance(kind, type) and is_dataclass(kind):
            yield from describe(kind, f"{name}.", value)


def _values(kind: Any, told: Mapping[str, Any]) -> str:
    options = [each for each in get_args(kind) if each is not type(None)]
    if type(None) in get_args(kind):
        return f"{_values(options[0], told)}, or null"
    if kind is bool:
        return "true, false"
    if "choices" in told:
        return ", ".join(told["choices"])
    limits = [f"{sign} {text_of(told[name])}" for name, (sign, *_) in LIMITS.items() if name in told]
    return " ".join([TYPES.get(kind, "settings"), ", ".join(limits)]).strip()


def text_of(value: Any) -> str:
    """A value as it is typed; empty where there is none yet."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:g}")
    if isinstance(value, list):
        return f"[{','.join(map(text_of, value))}]"
    if is_dataclass(value):
        return getattr(value, "_target_", "")
    return "" if value == MISSING else str(value) or '""'


def quote(text: str) -> str:
    """A text in the quotation marks that Hydra's grammar needs and a shell takes away."""
    return "'{}'".format(re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (found[2] and r"\'"), text))


# ---- suggestions

PUNCTUATION = re.compile(r"[-_.]")


def did_you_mean(options: Iterable[str]) -> str:
    """``" Did you mean 'x'?"``, ``" Did you mean one of 'x', 'y'?"``, or nothing."""
    quoted = [repr(option) for option in options]
    return f" Did you mean {'one of ' if len(quoted) > 1 else ''}{', '.join(quoted)}?" if quoted else ""


def closest(word: str, options: Iterable[str]) -> list[str]:
    """The options that begin with a mistyped word, else one that contains it, else a similar one.

    Case, ``-``, ``_`` and ``.`` do not count.
    """
    plain = {option: PUNCTUATION.sub("", option).lower() for option in options}
    asked = PUNCTUATION.sub("", word).lower()
    if word in plain or not asked:
        return [word] if word in plain else []
    if family := [option for option, text in plain.items() if text.startswith(asked)]:
        return family[:8]
    containing = [option for option, text in plain.items() if len(asked) > 1 and asked in text]
    return difflib.get_close_matches(word, containing or plain, n=1, cutoff=0 if containing else 0.6)


def nearest(word: str, options: Iterable[str]) -> str:
    """``did_you_mean`` of the ``closest`` options."""
    return did_you_mean(closest(word, options))


def shorten(text: str) -> str:
    """A text of at most 80 characters, or its beginning and end."""
    return text if len(text) <= 80 else f"{text[:40]}...{text[-40:]}"
