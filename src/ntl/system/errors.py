"""The failures that are reported as one line: the user's input, and a training that diverged. Standard library only."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, where, what to do. Exit code 2."""


class Busy(UserError):
    """Another process is at the same run: what is asked for is being made. Exit code 2, as of any UserError."""


class MissingPackage(UserError, ModuleNotFoundError):
    """A package is not installed that an extra of pyproject.toml brings. Exit code 2, as of any UserError."""


class Diverged(Exception):
    """The training loss became NaN or infinite. Exit code 3."""


@contextmanager
def one_line_errors(action: str, where: Path) -> Iterator[None]:
    """Turn a full disk, a read-only folder and the like into one line."""
    try:
        yield
    except OSError as error:
        at = f" ({error.filename})" if error.filename and str(error.filename) != str(where) else ""
        raise UserError(f"cannot {action} {where}: {error.strerror or error}{at}.") from error


# Packages that are not called as their modules are.
PACKAGES = {
    "google": "protobuf",
    "hydra": "hydra-core",
    "hydra_plugins": "hydra-submitit-launcher",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turn the import of a package that is not installed into one line, with the extra that brings it.

    Where several do it is ``extra``, of the outermost ``needs``. What none brings is a fault, and passes.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extras = _extras_with((error.name or "").partition(".")[0])
        if not extras:
            raise
        brings = extra if extra in extras else min(extras)
        line = f"{error.name} is not installed; run pip install -e '.[{brings}]' in the clone."
        raise MissingPackage(line, name=error.name) from error


def _extras_with(module: str) -> set[str]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("ntl") or []
    except PackageNotFoundError:  # a tree that was never installed
        return set()
    package = PACKAGES.get(module, module).replace("_", "-")
    found = [re.fullmatch(rf"{re.escape(package)}(?![\w-]).*extra == .(\w+).", line, re.IGNORECASE) for line in lines]
    return {match[1] for match in found if match}


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# What stands where one of the run's files should, or what keeps it from being reached.
STATE = (
    *(errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOENT),
    *(errno.ELOOP, errno.ENAMETOOLONG, errno.EIO, errno.ESTALE, errno.EFBIG),
)
# safetensors hands on the system's words without its number; torch says where its archive broke off, or what C++ says
# of any file; numpy how much it wrote.
WORDS = re.compile("|".join([*map(os.strerror, FULL), "PytorchStreamWriter", "unexpected pos", "iostream error"]))
NUMPY = re.compile(r"\d+ requested and \d+ written")
RUST = re.compile(r"\(os error (\d+)\)$")


def _number(error: BaseException) -> int | None:
    """The system's, of Python's own exceptions and of those of libraries in Rust."""
    told = RUST.search(str(error))
    return error.errno if isinstance(error, OSError) else int(told[1]) if told else None


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in FULL or bool(NUMPY.match(str(error)))
    return bool(WORDS.search(str(error)))


def _is_in(error: BaseException, folder: Path) -> bool:
    names = [name for name in (getattr(error, "filename", None), getattr(error, "filename2", None)) if name is not None]
    within = any(Path(os.fsdecode(name)).absolute().is_relative_to(folder.absolute()) for name in names)
    return _number(error) in STATE and (within or not isinstance(error, OSError))


@contextmanager
def one_line_when_full(folder: Path) -> Iterator[None]:
    """Raise a ``UserError`` naming ``folder`` for what the disk makes others raise.

    It is full, read-only or over its quota; or a file in ``folder`` cannot be written or read, as a folder stands in
    its place.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if _is_full(error):
            raise UserError(
                f"{folder}: a file could not be written whole ({str(error).splitlines()[0]}): is the disk full, or "
                "read-only? Make room; the same command continues from the last whole checkpoint."
            ) from error
        if _is_in(error, folder):
            raise UserError(
                f"{folder}: a file cannot be written or read ({str(error).splitlines()[0]}); move away what is in its "
                "place, and the same command continues from the last whole checkpoint."
            ) from error
        raise
