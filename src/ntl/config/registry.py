"""What the source of ``ntl.losses`` says of each loss that it registers: composing a config loads no torch."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ntl.config import folders
from ntl.config.settings import nearest
from ntl.system.errors import UserError

# The loss of a number head, which is none of tokens and so not registered.
SQUARED_ERROR = "squared_error"


# A loss with its arguments, and the line that registers it.
FUNCTION = re.compile(r"^def (\w+)\((.*?)\) -> ", re.MULTILINE | re.DOTALL)
REGISTERED = re.compile(r"^register\(\s*\"(\w+)\",\s*(\w+)(.*?)\)$", re.MULTILINE | re.DOTALL)


class Kind(NamedTuple):
    """A registered loss: what rules of settings read of its function, which stands above the line that registers it."""

    function: str
    options: tuple[str, ...]
    is_base: bool = False
    one_weight: bool = False
    digits: bool = False


def registered() -> dict[str, Kind]:
    """All losses that a line ``register("NAME", FUNCTION, ...)`` of a module of ``ntl.losses`` registers, by name."""
    return _read(tuple(import_module("ntl.losses").__path__))


@cache
def _read(places: tuple[str, ...]) -> dict[str, Kind]:
    found = {}
    for path in sorted(path for place in places for path in Path(place).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        functions = {name: re.findall(r"(\w+): ", own.partition("*,")[2]) for name, own in FUNCTION.findall(text)}
        for name, function, said in REGISTERED.findall(text):
            options = tuple(each for each in functions.get(function, ()) if each not in ("ignore_index", "reduction"))
            found[name] = Kind(function, options, *(f"{fact}=True" in said for fact in Kind._fields[2:]))
    return found


def _names() -> dict[str, str]:
    """The kind of each name that stands for one: its own, or that of its function."""
    return {each: name for name, kind in registered().items() for each in (kind.function, name)}


def checked_kind(kind: str) -> str:
    """The registered names of kinds joined by "+", each given by it or by its function. UserError: there is no such."""
    names = {kind: kind} if kind == SQUARED_ERROR else _names()
    for each in kind.split("+"):
        if each not in names:
            line = f"choose one of {', '.join(registered())}, or {SQUARED_ERROR} for a number head"
            raise UserError(f"loss.kind={kind}: {each!r} is none; {line}.{nearest(each, [*names, SQUARED_ERROR])}")
    return "+".join(names[each] for each in kind.split("+"))


def loss_choice(word: str) -> str:
    """The choice of ``loss=`` that has the kind of this name, or of the function of this name; else the word itself."""
    files = [path for folder in (folders.CONFIG_DIR, *folders.own_folders) for path in (folder / "loss").glob("*.yaml")]
    if word in [path.stem for path in files] or word not in _names():
        return word
    line = re.compile(rf"^kind: {_names()[word]}$", re.MULTILINE)
    return min((path.stem for path in files if line.search(path.read_text(encoding="utf-8"))), default=word)
