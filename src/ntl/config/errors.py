"""The failures that are reported as one line: the user's input, and a training that diverged. Standard library only."""

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
