"""Dataclasses of settings: what they say of their fields, as ``--help`` prints it, and what a mistyped name may mean.

Standard library only.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from functools import cache
from operator import ge, gt, le
from textwrap import wrap
from typing import Any

MISSING: Any = "???"  # as omegaconf.MISSING
COMPUTED = ("_target_", "contents")  # nobody sets these
# Limit -> its sign, its words, and whether a value holds to it.
LIMITS: Any = {"min": ("≥", "at least", ge), "above": (">", "above", gt), "max": ("≤", "at most", le)}
# YAML's name of a dataclass -> the class: /schema/model/t5 in ``config/model`` is the settings of a T5.
SCHEMAS: dict[str, Any] = {}

# The settings that an error names, and its line: what is wrong, and what to do. A name that begins with a dot is of the
# dataclass that has the rule, for which "." itself stands.
Rule = tuple[str, str]


class Schema:
    """A dataclass of settings; ``class T5Config(Schema, schema="model/t5")`` is one that YAML files name."""

    def __init_subclass__(cls, schema: str = "") -> None:
        if schema:
            SCHEMAS[schema] = cls

    def rules(self, config: Any, typed: Collection[str]) -> Iterable[Rule]:
        """Where its settings do not fit each other or the rest of ``config``; ``typed`` as in ``validate``."""
        return ()


def setting(
    default: Any,
    meaning: str = "",
    unit: str = "",
    *,
    origin: str = "",
    min: float | None = None,
    max: float | None = None,
    above: float | None = None,
    choices: Sequence[Any] = (),
    needs: str = "",
    room: str = "",
) -> Any:
    """A field of a settings dataclass.

    Args:
        default: Its default, or a function without arguments that makes it, such as ``list``.
        meaning: What it does, in one plain sentence.
        unit: What a number counts or measures.
        origin: Where the default comes from, if it is the paper's, the original code's or published.
        min, max, above, choices: What is allowed, ``above`` itself not, and infinity only with ``max=math.inf``.
        needs: The setting next to it that has to be on, since it has no effect otherwise.
        room: The package that has to define the class or function that it names.
    """
    told = {"meaning": meaning, "unit": unit, "origin": origin, "min": min, "max": max, "above": above}
    told |= {"choices": choices, "needs": needs, "room": room}
    told = {name: value for name, value in told.items() if value not in (None, "", ())}
    kind: Any = {"default_factory" if callable(default) else "default": default}
    return field(**kind, metadata=told)


def setting_names(schema: type) -> list[str]:
    """The keys of a schema that a user may set."""
    return [item.name for item in fields(schema) if item.name not in COMPUTED]


def default_of(item: Any) -> Any:
    """The default of a field."""
    return item.default_factory() if callable(item.default_factory) else item.default


@cache
def about(schema: type) -> dict[str, Mapping[str, Any]]:
    """What ``setting`` was told about each field; a field that replaces one without a word keeps what that was told."""
    told: dict[str, Mapping[str, Any]] = {}
    for base in reversed(schema.__mro__):
        for item in fields(base) if is_dataclass(base) else ():
            told[item.name] = item.metadata or {**told.get(item.name, {}), "origin": ""}
    return told


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


def describe(config: Any, path: str = "") -> dict[str, str]:
    """The lines that ``--help`` prints of each setting of a config and of the dataclasses in it, by name.

    ``path`` stands before each name, such as ``"trainer."``. Where a default comes from is told of the default alone.
    """
    lines = {}
    for place, part in nested(config, path):
        for item in fields(part):
            value, told = getattr(part, item.name), about(type(part))[item.name]
            is_group = is_dataclass(value)
            if item.name in COMPUTED or (not place and (is_group or value == MISSING)):
                continue
            limits = [f"{sign} {text_of(told[name])}" for name, (sign, *_) in LIMITS.items() if name in told]
            allowed = ", ".join([*limits, *map(text_of, told.get("choices", ()))])
            typed = "" if is_group else f"={text_of(value)} {told.get('unit', '')}".rstrip()
            origin = f" From: {told['origin']}." if told.get("origin") and value == default_of(item) else ""
            meaning = wrap(f"{told.get('meaning', '')}{origin}", 94)
            first = f"  {place}{item.name}{typed}{f'; {allowed}' if allowed else ''}"
            lines[f"{place}{item.name}"] = "\n      ".join([first, *meaning])
    return lines


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
    return "'{}'".format(re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + (match[2] and r"\'"), text))


# ---- suggestions

PUNCTUATION = re.compile(r"[-_.]")


def did_you_mean(options: Iterable[str]) -> str:
    """``" Did you mean 'x'?"``, ``" Did you mean one of 'x', 'y'?"``, or nothing."""
    quoted = [repr(option) for option in options]
    return f" Did you mean {'one of ' if len(quoted) > 1 else ''}{', '.join(quoted)}?" if quoted else ""


def closest(word: str, options: Iterable[str]) -> list[str]:
    """The options that begin with a mistyped word, else one that ends with it, is alike, or contains it.

    Case, ``-``, ``_`` and ``.`` do not count.
    """
    plain = {option: PUNCTUATION.sub("", option).lower() for option in options}
    asked = PUNCTUATION.sub("", word).lower()
    if word in plain or not asked:
        return [word] if word in plain else []
    if family := [option for option, text in plain.items() if text.startswith(asked)]:
        return family[:8]
    containing = [option for option, text in plain.items() if len(asked) > 1 and asked in text]
    ending = [option for option in containing if plain[option].endswith(asked)]
    typos = [option for option, text in plain.items() if text in difflib.get_close_matches(asked, [text], cutoff=0.8)]
    near = ending or typos or containing
    return difflib.get_close_matches(word, near or plain, n=1, cutoff=0 if near else 0.6)


def nearest(word: str, options: Iterable[str]) -> str:
    """``did_you_mean`` of the ``closest`` options."""
    return did_you_mean(closest(word, options))


def shorten(text: str) -> str:
    """A text of at most 80 characters, or its beginning and end."""
    return text if len(text) <= 80 else f"{text[:40]}...{text[-40:]}"
