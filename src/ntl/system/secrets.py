"""Redaction of the environment's keys, tokens and passwords, which must not appear in files or in output."""

import os
import re
import sys
import traceback
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

# Secrets are recognized by the end of their names: WANDB_API_KEY, HF_TOKEN, but not TOKENIZERS_PARALLELISM.
_NAMES = re.compile(r"(?:^|_)(?:KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
# Shorter values are not redacted, as they may be words that occur anywhere.
_MIN_LENGTH = 12
# The login before the host in the URL of a proxy, a mirror or a repository: token@ or user:password@. A password that
# was not percent-encoded may contain an @ or, after a colon, a slash; in doubt, the text counts as a login.
_LOGIN = re.compile(r"""(?<=://)(?:[^\s"/?#]+|[^\s"/?#:]*:[^\s"]+)(?=@)""")


def redact(text: str) -> str:
    """Replace every secret of the environment by ``<its variable's name>``, and logins in URLs by ``<login>``.

    A secret is also found if it is percent-encoded or if its quotes and backslashes are escaped.
    """
    secrets = {}
    for name, value in os.environ.items():
        if _NAMES.search(name):
            secrets.update({form: name for form in (unquote(value), value) if len(form) >= _MIN_LENGTH})
    # The longest first, because one secret may be the beginning of another.
    for value in sorted(secrets, key=len, reverse=True):
        text = _pattern(value).sub(f"<{secrets[value]}>", text)
    return _LOGIN.sub("<login>", text)


@lru_cache(maxsize=64)
def _pattern(value: str) -> re.Pattern[str]:
    return re.compile("".join(map(_character_pattern, value)))


def _character_pattern(character: str) -> str:
    # %25 is the percent sign itself: a URL within a URL is encoded twice.
    encoded = "".join(f"%(?:25)*{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    plain = r"\s|\+" if character.isspace() else re.escape(character)
    escaped = r"\\*" if character in "\"'\\" else ""
    return f"(?:(?i:{encoded})|{escaped}{plain})"


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
