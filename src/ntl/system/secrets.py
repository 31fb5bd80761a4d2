"""Values of the environment that no file and no line of ours may hold: keys, tokens, passwords."""

import os
import re
import sys
import traceback
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

# By the end of their names: WANDB_API_KEY, HF_TOKEN, AWS_SECRET_ACCESS_KEY. TOKENIZERS_PARALLELISM is none.
_NAMES = re.compile(r"(?:^|_)(?:KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
# A shorter value may be a word that occurs anywhere.
_LEAST = 12
# What stands before the host, as a proxy, a mirror or a repository may be given: token@, user:password@. A password
# that should have been encoded may hold an @ or, behind a colon, a slash: what might be one is taken for one.
_LOGIN = re.compile(r"""(?<=://)(?:[^\s"/?#]+|[^\s"/?#:]*:[^\s"]+)(?=@)""")


def redact(text: str) -> str:
    """The text with every secret of the environment replaced by ``<its variable's name>``, and ``<login>`` in URLs.

    A secret is found as it is, percent-encoded, and with its quotes and backslashes escaped.
    """
    secrets = {}
    for name, value in os.environ.items():
        if _NAMES.search(name):
            secrets.update({form: name for form in (unquote(value), value) if len(form) >= _LEAST})
    # The longest first: one may begin with another.
    for value in sorted(secrets, key=len, reverse=True):
        text = _spellings(value).sub(f"<{secrets[value]}>", text)
    return _LOGIN.sub("<login>", text)


@lru_cache(maxsize=64)
def _spellings(value: str) -> re.Pattern[str]:
    return re.compile("".join(map(_spelling, value)))


def _spelling(character: str) -> str:
    # %25 is the percent sign itself: an address within an address is encoded twice.
    encoded = "".join(f"%(?:25)*{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    plain = r"\s|\+" if character.isspace() else re.escape(character)
    escaped = r"\\*" if character in "\"'\\" else ""
    return f"(?:(?i:{encoded})|{escaped}{plain})"


def redacted(value: Any) -> Any:
    """A value of JSON's types with ``redact`` applied to every text in it, but not to the keys."""
    if isinstance(value, Mapping):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def print_traceback() -> None:
    """That of the exception which is being handled, on standard error, redacted."""
    print(redact(traceback.format_exc()), end="", file=sys.stderr)
