"""Which files a data set was made from, and whether they have changed since.

Python's audit hooks (PEP 578) report every file that is opened, so that a data set declares nothing. Files opened by
another process or by a C library are not reported; therefore files that a setting names count as read, too.
"""

import ast
import hashlib
import inspect
import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ntl.system.errors import UserError
from ntl.system.files import atomic_writer, sha256_of

DIGESTS = ".digests.json"
PACKAGE = Path(__file__).resolve().parents[1]
# A file written this recently may be written again within the resolution of its time stamp.
SETTLED_SECONDS = 2.0
# Where the interpreter and the system read files of their own.
_ELSEWHERE = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
ELSEWHERE = (*sorted(_ELSEWHERE), "/proc", "/sys", "/dev", "/etc", "/usr/share/zoneinfo", "/usr/share/locale")
CODE = (".py", ".pyc", ".so")
Stamp = tuple[int, ...]
# Beginning of the digest of a data set's code -> digest of earlier code that makes the same rows: what that prepared is
# found, and need not be made again. A change of the code that changes no row replaces the left side.
SAME_ROWS = {
    "297b0db055161ae2": "e4e967dbf55d45e3a6ad15202566eed697232770f7f4055137f6bc3e544b6caa",  # arithmetic
    "35ec87e9a3122867": "f2903c3361bf48b44e42e91256e59e87f154e31eb41ab48e14375663da2f1d4d",  # gsm8k
    "05dcf377c4c23b77": "0113419c10a26363fa022fe17bad722075c8b4ed29c130262a9ada8321b143da",  # mathematics
    "d8dfe29b0b128df2": "dc14d3f8442de92c1ccdfb44918c98e889186d61cb0997c7ba027dc6d30445db",  # multiplication
    "538091af275ce98c": "c390689cf344a16ae60aa05a9008e19c5315f544bc882c05c478b4f229a43120",  # multirc
    "b495a5f54e7f5ace": "60070f01b5be6a36826fe83d299dbdc097faa0d65bab9a4b92ed8fa14b723c52",  # noisy_numbers
    "90d293b07f6648aa": "6a0468f891968f5acf41dfec64a8140c50d5e17d7cc5a348881eb1de5fff3626",  # rjokes
}

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
        # A file that the data set writes is no source; one that it reads again is what it is now.
        opened.pop(name, None)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            with suppress(OSError, ValueError):
                opened[name] = stamp_of(Path(name))


@contextmanager
def watching() -> Iterator[dict[str, Stamp]]:
    """Collects the files other than code that are opened for reading: path as given -> its stamp at that time.

    A folder whose entries are listed ends in a slash and has an empty stamp.
    """
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_hook)
    opened: dict[str, Stamp] = {}
    _watched.append(opened)
    try:
        yield opened
    finally:
        # By identity: two dicts may be equal.
        _watched[:] = [other for other in _watched if other is not opened]


def stamp_of(path: Path) -> Stamp:
    """Size, times and inode of a file, which change with its content. OSError if it does not exist."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def named_files(values: Any, roots: Iterable[Path]) -> Iterator[Path]:
    """The files that settings name, by a path of their own or one relative to a data folder."""
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
    """A digest of the source file of a class without comments and docstrings; empty if there is no such file."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    digest = hashlib.sha256(ast.unparse(tree).encode()).hexdigest()
    return SAME_ROWS.get(digest[:16], digest)


class Files:
    """Source files, by names that are valid on another machine: ``{data}/x`` in a data folder, ``{ntl}/x`` in ntl.

    ``roots`` are the data folders; the first one has the cache of digests.
    """

    def __init__(self, roots: list[Path]) -> None:
        self.roots = roots
        self.cache = roots[0] / DIGESTS

    def name(self, path: Path) -> str | None:
        """The name of a file; None if it is no source: in a hidden folder of a data folder, or the system's own."""
        place = Path(os.path.abspath(path))
        for mark, root in [*(("{data}", root) for root in self.roots), ("{ntl}", PACKAGE)]:
            if place.is_relative_to(root):
                below = place.relative_to(root)
                return None if place == root or below.parts[0].startswith(".") else f"{mark}/{below.as_posix()}"
        if any(place.is_relative_to(other) for other in ELSEWHERE):
            return None
        return str(path)

    def path(self, name: str) -> Path | None:
        """The file of this name, or the folder if it ends in a slash; None if it does not exist."""
        mark, _, below = name.partition("/")
        places = {"{data}": self.roots, "{ntl}": [PACKAGE]}.get(mark)
        found = [Path(name)] if places is None else [root / below for root in places]
        with suppress(OSError):
            # A folder without entries counts as gone: it has lost its files.
            return next((at for at in found if (name.endswith("/") and any(at.iterdir())) or at.is_file()), None)
        return None

    def digests(self, paths: Iterable[Path]) -> dict[Path, str]:
        """The sha256 of each file, from the cache if its stamp has not changed; of a folder that of its names."""
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
            # Without a cache, in a folder that cannot be written, it is computed again each time.
            with suppress(OSError), atomic_writer(self.cache) as stream:
                stream.write(json.dumps({**known, **new}, indent=0).encode())
        return digests

    def _known(self) -> dict[str, Any]:
        try:
            found = json.loads(self.cache.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def digests_by_name(
        self, opened: Mapping[str, Stamp], named: Iterable[Path], without: Sequence[Path]
    ) -> dict[str, str]:
        """Name -> sha256 of the files that were read, except those in ``without``, and of the folders listed.

        A folder counts if its entries were listed and a file in it was read: another file would have been read, too.
        UserError for a file that has changed since it was opened.
        """
        paths: dict[str, Path] = {}
        places = [os.path.abspath(path) for path in without]
        for text, stamp in opened.items():
            path = Path(text)
            if not path.is_file() or any(Path(os.path.abspath(path)).is_relative_to(other) for other in places):
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
        """Of files by name: those that have other content now, and those that no longer exist."""
        paths = {name: self.path(name) for name in files}
        digests = self.digests([path for path in paths.values() if path])
        changed = [str(path) for name, path in paths.items() if path and digests[path] != files[name]]
        return changed, [name for name, path in paths.items() if path is None]
