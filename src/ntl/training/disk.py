"""A disk that is full or read-only is the user's to mend: one line, whichever library noticed it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntl.config import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# safetensors hands on the system's words without its number; torch says where its archive broke off.
WORDS = (*map(os.strerror, FULL), "PytorchStreamWriter", "unexpected pos")


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in FULL
    return any(words in str(error) for words in WORDS)


@contextmanager
def one_line_when_full(folder: Path) -> Iterator[None]:
    """Raise a ``UserError`` naming ``folder`` for what a full or read-only disk, or a quota, makes others raise."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not _is_full(error):
            raise
        raise UserError(
            f"{folder}: a file could not be written whole ({str(error).splitlines()[0]}): is the disk full, or "
            "read-only? Make room; the same command continues from the last whole checkpoint."
        ) from error
