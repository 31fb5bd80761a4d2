"""Which files a data set was made from, whatever read them, and whether they are still the same.

Files are seen through Python's audit hooks (PEP 578): what a data set opens needs no declaration, and cannot be
forgotten. What another process or a C library opens by itself is not seen, so that a file that a setting names counts
as read, too.
"""

import ast
import hashlib
import inspect
import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ntl.system.errors import UserError
from ntl.system.files import atomic_writer, sha256_of

DIGESTS = ".digests.json"
PACKAGE = Path(__file__).resolve().parents[1]
# A file that was written so recently may be written again without another time of change.
SETTLED_SECONDS = 2.0
# What an interpreter and a system read for themselves.
_ELSEWHERE = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
ELSEWHERE = (*sorted(_ELSEWHERE), "/proc", "/sys", "/dev", "/etc", "/usr/share/zoneinfo", "/usr/share/locale")
CODE = (".py", ".pyc", ".so")
Stamp = tuple[int, ...]
# Digest of a data set's code -> that of earlier code that makes the same rows: what it prepared need not be made again.
SAME_ROWS: dict[str, str] = {}

_watched: list[dict[str, Stamp]] = []
_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched or event not in ("open", "os.listdir", "os.scandir"):
        return
    path = arguments[0]
    if path is None or isinstance(path, int):
        return
    name = os.fsdecode(path)
    if event != "open":
        for opened in _watched:
            opened[os.path.join(name, "")] = ()
        return
    if name.endswith(CODE):
        return
    flags: int = arguments[2]
    for opened in _watched:
        # What was written meanwhile is the data set's own; what is read again is what it is now.
        opened.pop(name, None)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            with suppress(OSError, ValueError):
                opened[name] = stamp_of(Path(name))


@contextmanager
def watching() -> Iterator[dict[str, Stamp]]:
    """Collects the files, code apart, that are opened for reading: path as it was given -> its stamp at that time.

    A folder whose entries are listed ends in a slash and has no stamp.
    """
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_hook)
    opened: dict[str, Stamp] = {}
    _watched.append(opened)
    try:
        yield opened
    finally:
        # By identity: two of them may be equal.
        _watched[:] = [other for other in _watched if other is not opened]


def stamp_of(path: Path) -> Stamp:
    """What changes with a file's content: size, times and place on the disk. OSError where there is none."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def named_files(values: Any, roots: Iterable[Path]) -> Iterator[Path]:
    """The files that settings name, as they are or below a data folder."""
    if isinstance(values, str):
        with suppress(OSError, ValueError):
            yield from (path for path in (Path(values), *(root / values for root in roots)) if path.is_file())
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from named_files(value, roots)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from named_files(value, roots)


@cache
def code_of(kind: type) -> str:
    """A digest of the source file of a class, less comments and docstrings; empty where there is none."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    digest = hashlib.sha256(ast.unparse(tree).encode()).hexdigest()
    return SAME_ROWS.get(digest, digest)


class Files:
    """Files by names that mean the same on another machine: ``{data}/x`` below a data folder, ``{ntl}/x`` ours.

    ``roots`` are the data folders, the first of which keeps the digests that were computed before.
    """

    def __init__(self, roots: list[Path]) -> None:
        self.roots = roots
        self.cache = roots[0] / DIGESTS

    def name(self, path: Path) -> str | None:
        """None for what is no source: hidden folders of a data folder, what a system reads for itself."""
        place = Path(os.path.abspath(path))
        for mark, root in [*(("{data}", root) for root in self.roots), ("{ntl}", PACKAGE)]:
            if place.is_relative_to(root):
                below = place.relative_to(root)
                return None if place == root or below.parts[0].startswith(".") else f"{mark}/{below.as_posix()}"
        if any(place.is_relative_to(other) for other in ELSEWHERE):
            return None
        return str(path)

    def path(self, name: str) -> Path | None:
        """The file of this name, or the folder where it ends in a slash; None where there is none."""
        mark, _, below = name.partition("/")
        places = {"{data}": self.roots, "{ntl}": [PACKAGE]}.get(mark)
        found = [Path(name)] if places is None else [root / below for root in places]
        with suppress(OSError):
            # A folder without entries has lost its files, as one that is gone.
            return next((at for at in found if (name.endswith("/") and any(at.iterdir())) or at.is_file()), None)
        return None

    def digests(self, paths: Iterable[Path]) -> dict[Path, str]:
        """The sha256 of each file; of one that did not change since it was asked for, without reading it.

        That of a folder is of the names in it.
        """
        known = self._known()
        new, digests = {}, {}
        for path in paths:
            if path.is_dir():
                names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
                digests[path] = hashlib.sha256(json.dumps(names).encode()).hexdigest()
                continue
            place = os.path.abspath(path)
            stamp = [*stamp_of(path)]
            before = known.get(place)
            if isinstance(before, list) and before[:-1] == stamp:
                digests[path] = before[-1]
                continue
            digests[path] = sha256_of(path)
            if time.time_ns() - max(stamp[1:3]) > SETTLED_SECONDS * 1e9 and [*stamp_of(path)] == stamp:
                new[place] = [*stamp, digests[path]]
        if new:
            # Where nothing can be written, it is computed again.
            with suppress(OSError), atomic_writer(self.cache) as stream:
                stream.write(json.dumps({**known, **new}, indent=0).encode())
        return digests

    def _known(self) -> dict[str, Any]:
        try:
            found = json.loads(self.cache.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def sealed(self, opened: Mapping[str, Stamp], named: Iterable[Path], without: Path) -> dict[str, str]:
        """Name -> sha256 of the files that were read, but for those below ``without``, and of folders of theirs.

        A folder counts where its entries were listed: another file in it would have been read, too. UserError for a
        file that was changed since: nobody knows what of it was read.
        """
        paths: dict[str, Path] = {}
        for text, stamp in opened.items():
            path = Path(text)
            if not path.is_file() or Path(os.path.abspath(path)).is_relative_to(without):
                continue
            if (name := self.name(path)) is None:
                continue
            if stamp_of(path) != stamp:
                raise UserError(f"{path}: was changed while it was read; run the same command again.")
            paths[name] = path
        for path in named:
            if (name := self.name(path)) is not None:
                paths.setdefault(name, path)
        parents = {os.path.dirname(os.path.abspath(path)) for path in paths.values()}
        for text in opened:
            place = os.path.abspath(text)
            if text.endswith(os.sep) and place in parents and place not in (*sys.path, os.getcwd(), ""):
                name = self.name(Path(text))
                paths.update({f"{name.rstrip('/')}/": Path(text)} if name else {})
        digests = self.digests(paths.values())
        return {name: digests[path] for name, path in sorted(paths.items())}

    def changes(self, files: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Of files that were read, by name: those that have other content now, and those that are gone."""
        paths = {name: self.path(name) for name in files}
        digests = self.digests([path for path in paths.values() if path])
        changed = [str(path) for name, path in paths.items() if path and digests[path] != files[name]]
        return changed, [name for name, path in paths.items() if path is None]
