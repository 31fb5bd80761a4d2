"""A disk that is full or read-only, or a folder in the place of a file, is the user's to mend: one line then."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntl.config import UserError

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
