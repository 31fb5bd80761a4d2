"""The failures that are reported as one line: the user's input, and a training that diverged."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, where, what to do. Exit code 2."""


class Busy(UserError):
    """Another process is at the same run: what is asked for is being made. Exit code 2, as of any UserError."""


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
