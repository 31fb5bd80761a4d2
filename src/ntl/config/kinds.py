"""What the source of ``ntl.losses`` says of each loss that it registers: composing a config loads no torch."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ntl.config import folders
from ntl.config.settings import nearest
from ntl.system.errors import UserError

# The loss of a number head, which is none of tokens and so not registered.
SQUARED_ERROR = "squared_error"


# Arguments of losses that are no options.
COMMON = ("ignore_index", "reduction")


class Kind(NamedTuple):
    """A registered loss: the fields of `ntl.losses.kinds.LossKind` that rules of settings read, as its line has them.

    ``options`` are the keyword arguments that not every loss has; None if the function is defined elsewhere.
    """

    function: str
    options: tuple[str, ...] | None
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
        body = ast.parse(path.read_text(encoding="utf-8")).body
        functions = {each.name: each.args.kwonlyargs for each in body if isinstance(each, ast.FunctionDef)}
        for line in body:
            match line:
                case ast.Expr(ast.Call(ast.Name("register"), [ast.Constant(str(name)), ast.Name(function)], keywords)):
                    said = {each.arg: each.value for each in keywords if each.arg in Kind._fields}
                    facts: Any = {key: each.value for key, each in said.items() if isinstance(each, ast.Constant)}
                    options = [each.arg for each in functions.get(function, ()) if each.arg not in COMMON]
                    found[name] = Kind(function, tuple(options) if function in functions else None, **facts)
    return found


def checked_kind(kind: str) -> str:
    """The registered names of kinds joined by "+", each given by it or by its function. UserError: there is no such."""
    names = {each: name for name, known in registered().items() for each in (known.function, name)}
    for each in kind.split("+"):
        if kind != SQUARED_ERROR and each not in names:
            line = f"choose one of {', '.join(registered())}, or {SQUARED_ERROR} for a number head"
            raise UserError(f"loss.kind={kind}: {each!r} is none; {line}.{nearest(each, [*names, SQUARED_ERROR])}")
    return "+".join(names.get(each, each) for each in kind.split("+"))


def loss_choice(word: str) -> str:
    """The choice of ``loss=`` that has the kind of this name, or of the function of this name; else the word itself."""
    files = [path for folder in (folders.CONFIG_DIR, *folders.own_folders) for path in (folder / "loss").glob("*.yaml")]
    names = {name for name, kind in registered().items() if word in (name, kind.function)}
    if word in [path.stem for path in files] or not names:
        return word
    has_kind = re.compile(rf"^kind: ({'|'.join(map(re.escape, names))})$", re.MULTILINE)
    return min((path.stem for path in files if has_kind.search(path.read_text(encoding="utf-8"))), default=word)
