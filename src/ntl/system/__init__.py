"""Utilities that know nothing of models or numbers: errors, files, locks, the machine, the network, lazy packages."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def exports(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return ``__getattr__`` and ``__all__`` for a package that imports a module when its names are used (PEP 562).

    Its names are those that ``file`` imports in its ``if TYPE_CHECKING:`` block, as ``from m import x as x``. The block
    is read, so that there is no second list that could differ from what the type checker sees.
    """
    lines = re.findall(r"^    from (\S+) import (\w+) as \2$", Path(file).read_text(encoding="utf-8"), re.MULTILINE)
    modules = {name: module for module, name in lines}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return load, sorted(modules)
