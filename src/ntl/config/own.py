"""A config folder of one's own, ``--config-dir DIR``, and the code in the working directory that its files name.

Only the command line that names the folder trusts it, and of the code only what a file in the folder names: a run, a
checkpoint or a table that names the same code is refused without it.
"""

import ast
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial, update_wrapper
from pathlib import Path
from typing import Any

from ntl.config import targets
from ntl.config.folders import CONFIG_DIR, GROUPS, own_folders
from ntl.system.errors import UserError

OPTION = "--config-dir"
OPTION_HELP = "further configs of your own, in folders such as DIR/loss; they may name code in the working directory"


def take_option(words: list[str]) -> None:
    """Take ``--config-dir DIR`` out of the words of a command line, and use the folders. UserError: see ``use``."""
    found = []
    while place := next((i for i, word in enumerate(words) if word == OPTION or word.startswith(f"{OPTION}=")), None):
        _, equals, value = words.pop(place).partition("=")
        if not equals:
            value = words.pop(place) if place < len(words) else ""
        if not value:
            raise UserError(f"{OPTION}: name a folder.")
        found.append(value)
    use(found)


def use(folders: Sequence[Path | str]) -> None:
    """Use the configs of these folders, and trust the code in the working directory that they name.

    UserError: a folder without configs, a file that is no YAML or has the name of one of ntl's, a name of code that is
    neither in ntl nor in the working directory.
    """
    for folder in [Path(each).absolute() for each in folders]:
        if folder in own_folders:
            continue
        files = [path for group in GROUPS for path in sorted((folder / group).rglob("*.yaml"))]
        if not files:
            some = ", ".join(f"{group}/" for group in list(GROUPS)[:5])
            raise UserError(f"{OPTION} {folder}: no YAML file in a folder named like a setting: {some}, ...")
        for path in files:
            if any((other / path.relative_to(folder)).is_file() for other in (CONFIG_DIR, *own_folders)):
                choice = f"{path.parent.relative_to(folder)}={path.stem}"
                raise UserError(f"{path}: {choice} exists already; give the file another name.")
            for target in _named_in(targets.read_own_yaml(path)):
                if path.relative_to(folder).parts[0] != "hydra":  # what a launcher names is Hydra's to find
                    _trust(target, path)
        own_folders.append(folder)


def with_own_folders(task: Callable[..., Any]) -> Callable[..., Any]:
    """The task of a launcher of Hydra, which may run in another process, there with the folders of this one."""
    return update_wrapper(partial(_run, task, [*own_folders]), task) if own_folders else task


def _run(task: Callable[..., Any], folders: Sequence[Path], *given: Any) -> Any:
    use(folders)
    return task(*given)


def _named_in(values: Any, key: str = "") -> Iterator[str]:
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _named_in(value, str(name))
    elif isinstance(values, list):
        for value in values:
            yield from _named_in(value)
    elif key in targets.NAMING and isinstance(values, str):
        yield values


def _trust(target: str, path: Path) -> None:
    module = target.partition(".")[0]
    if module == targets.PACKAGE:
        return
    here = Path.cwd()
    if not target.replace(".", "").isidentifier() or not _files_of(target):
        raise UserError(f"{path}: {target}: there is no {module}.py in {here}, the working directory.")
    if str(here) not in sys.path:
        sys.path.append(str(here))  # the last place: installed packages are found first
    from importlib.util import find_spec

    origin = getattr(find_spec(module), "origin", None)
    if not origin:
        raise UserError(f"{path}: {target}: {here / module} has no __init__.py; add an empty one.")
    if not Path(origin).resolve().is_relative_to(here.resolve()):
        raise UserError(f"{path}: {target}: {module} is {origin}, not in {here}; give your module another name.")
    targets.own[target] = str(path)


def code_of(config: Any) -> dict[str, dict[str, str]]:
    """Group of the config -> file of the working directory that its code is in, or imports -> sha256."""
    found: dict[str, dict[str, str]] = {}
    for group, _, target in targets.named_code(config):
        if target.partition(".")[0] != targets.PACKAGE:
            found.setdefault(group, {}).update(digests(target))
    return {group: dict(sorted(files.items())) for group, files in found.items()}


def changed(stored: Mapping[str, Any], config: Any, groups: Sequence[str]) -> list[str]:
    """The files that are not as in ``stored``, an earlier ``code_of``, for the code of these groups."""
    now = code_of(config)
    pairs = [(stored.get(group, {}), now.get(group, {})) for group in groups]
    return sorted({file for before, after in pairs for file, _ in {*before.items()} ^ {*after.items()}})


@cache
def digests(target: str) -> dict[str, str]:
    """The files of a module in the working directory, with those it imports from there -> sha256.

    ``target`` is the dotted path of the module or of a part of it. Read once in a process, as the code itself is.
    """
    here = Path.cwd()
    found: dict[str, str] = {}
    waiting = _files_of(target)
    while waiting:
        path = waiting.pop()
        name = path.relative_to(here).as_posix()
        if name in found:
            continue
        code = path.read_bytes()
        found[name] = hashlib.sha256(code).hexdigest()
        waiting += [file for module in _imports(code, path, here) for file in _files_of(module)]
    return found


def _files_of(dotted: str) -> list[Path]:
    """The files in the working directory that importing a module runs; a part of a module names its module."""
    found, place = [], Path.cwd()
    for part in dotted.split("."):
        place = place / part
        file = next((file for file in (place / "__init__.py", place.with_name(f"{part}.py")) if file.is_file()), None)
        if file:
            found.append(file)
        if not place.is_dir():
            break
    return found


def _imports(code: bytes, path: Path, here: Path) -> Iterator[str]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return  # importing it says so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(here).parts[: -node.level] if node.level else ()
            module = ".".join([*package, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
