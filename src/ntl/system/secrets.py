"""Redaction of the environment's keys, tokens and passwords, which must not appear in files or in output."""

import json
import os
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

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
