"""Failures that are reported in one line, and redaction of what no output may hold. Standard library only."""

import errno
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, where, and what to do. Exit code 2."""


class Busy(UserError):
    """Another process is working on the same run. Exit code 2, like any UserError."""


class MissingPackage(UserError, ModuleNotFoundError):
    """A package of one of pyproject.toml's extras is not installed. Exit code 2, like any UserError."""


class Diverged(Exception):
    """The training loss, or what a model decodes from, became NaN or infinite. Exit code 3."""


@contextmanager
def one_line_errors(action: str, where: Path) -> Iterator[None]:
    """Turn an OSError, such as a full disk or a read-only folder, into a UserError of one line."""
    try:
        yield
    except OSError as error:
        file = f" ({error.filename})" if error.filename and str(error.filename) != str(where) else ""
        raise UserError(f"cannot {action} {where}: {error.strerror or error}{file}.") from error


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turn the import of a package that is not installed into a UserError of one line, to install ``extra``.

    The innermost ``needs`` says which one. Modules of this project are not changed: that is a fault of the program.
    """
    try:
        yield
    except MissingPackage:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "ntl").partition(".")[0] == "ntl":
            raise
        line = f"{error.name} is not installed; run pip install -e '.[{extra}]' in the clone."
        raise MissingPackage(line, name=error.name) from error


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# How libraries report a full disk: safetensors with the system's message but no error number, torch with a message of
# its archive writer or of C++ streams, numpy with the number of items written.
MESSAGES = "|".join([*map(os.strerror, FULL), "PytorchStreamWriter", "unexpected pos", "iostream error"])
NUMPY = r"\d+ requested and \d+ written"


@contextmanager
def one_line_when_full(folder: Path) -> Iterator[None]:
    """Turn the errors that libraries raise about a disk that is full, read-only or over its quota into a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if getattr(error, "errno", None) not in FULL and not re.search(f"{MESSAGES}|{NUMPY}", str(error)):
            raise
        raise UserError(
            f"{folder}: a file could not be written whole ({str(error).splitlines()[0]}): is the disk full, or "
            "read-only? Make room, and run it again; complete checkpoints are kept."
        ) from error


@contextmanager
def one_line_when_edited(checkpoint: Path, files: str) -> Iterator[None]:
    """Turn whatever fails while files of a checkpoint are read, which anyone may have edited, into a UserError.

    It may also be a fault of the program: the traceback is added to ``run.log`` in the folder of the checkpoint's run.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError | MemoryError) or "memory" in str(error):
            raise
        run, note = checkpoint.parent.parent, ""
        with suppress(OSError):
            if (run / "config.yaml").is_file():
                with (run / "run.log").open("a") as log, redirect_stderr(log):
                    print_traceback()
                note = "; traceback in run.log"
        why = " ".join(f"{type(error).__name__}: {error}".partition(". ")[0].split())[:200]
        raise UserError(
            f"{checkpoint}: {files} cannot be read ({why}{note}); restore it, or remove this folder, and the same "
            "command goes on from the checkpoint before; resume=never starts over."
        ) from error


# ---- the environment's keys, tokens and passwords, which must not appear in files or in output

# Secrets are recognized by the end of their names: WANDB_API_KEY, HF_TOKEN, but not TOKENIZERS_PARALLELISM.
_NAMES = re.compile(r"(?:^|_)(?:KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
# Shorter values are not redacted, as they may be words that occur anywhere.
_MIN_LENGTH = 12
# The login before the host in the URL of a proxy, a mirror or a repository: token@ or user:password@. A password that
# was not percent-encoded may contain an @ or, after a colon, a slash; in doubt, the text counts as a login.
_LOGIN = re.compile(r"""(?<=://)(?:[^\s"/?#]+|[^\s"/?#:]*:[^\s"]+)(?=@)""")


def redact(text: str) -> str:
    """Replace every secret of the environment by ``<its variable's name>``, and logins in URLs by ``<login>``.

    A secret is also found as it is in a URL, in JSON and in Python's ``repr``.
    """
    secrets = {}
    for name, value in os.environ.items():
        if _NAMES.search(name):
            for plain in (value, unquote(value)):
                forms = (plain, quote(plain), quote(plain, safe=""), quote_plus(plain), repr(plain)[1:-1])
                forms += (json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1])
                secrets.update({form: name for form in forms if len(form) >= _MIN_LENGTH})
    # The longest first, because one secret may be the beginning of another.
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, f"<{secrets[value]}>")
    return _LOGIN.sub("<login>", text)


def redacted(value: Any) -> Any:
    """Return a JSON-like value with ``redact`` applied to every string in it except keys."""
    if isinstance(value, Mapping):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def print_traceback() -> None:
    """Print the traceback of the exception being handled to standard error, redacted."""
    print(redact(traceback.format_exc()), end="", file=sys.stderr)
