"""Values of the environment that no file and no line of ours may hold: keys, tokens, passwords."""

import os
import re
import sys
import traceback

# By the end of their names: WANDB_API_KEY, HF_TOKEN, AWS_SECRET_ACCESS_KEY. TOKENIZERS_PARALLELISM is none.
_NAMES = re.compile(r"(?:^|_)(?:KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
# A shorter value may be a word that occurs anywhere.
_LEAST = 12
# https://user:password@host, as a proxy or a mirror may be given.
_URL = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]*(?=@)")


def redact(text: str) -> str:
    """The text with every secret of the environment replaced by ``<its variable's name>``, and ``<login>`` in URLs."""
    secrets = {value: name for name, value in os.environ.items() if len(value) >= _LEAST and _NAMES.search(name)}
    # The longest first: one may begin with another.
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, f"<{secrets[value]}>")
    return _URL.sub("<login>", text)


def print_traceback() -> None:
    """That of the exception which is being handled, on standard error, redacted."""
    print(redact(traceback.format_exc()), end="", file=sys.stderr)
