"""What a mistyped word may mean."""

import difflib
import re
from collections.abc import Iterable

PUNCTUATION = re.compile(r"[-_.]")


def did_you_mean(options: Iterable[str]) -> str:
    """``" Did you mean 'x'?"``, ``" Did you mean one of 'x', 'y'?"``, or nothing."""
    quoted = [repr(option) for option in options]
    return f" Did you mean {'one of ' if len(quoted) > 1 else ''}{', '.join(quoted)}?" if quoted else ""


def closest(word: str, options: Iterable[str]) -> list[str]:
    """The options that begin with a mistyped word, else one that contains it, else a similar one.

    Case, ``-``, ``_`` and ``.`` do not count.
    """
    plain = {option: PUNCTUATION.sub("", option).lower() for option in options}
    asked = PUNCTUATION.sub("", word).lower()
    if word in plain or not asked:
        return [word] if word in plain else []
    if family := [option for option, text in plain.items() if text.startswith(asked)]:
        return family[:8]
    containing = [option for option, text in plain.items() if len(asked) > 1 and asked in text]
    return difflib.get_close_matches(word, containing or plain, n=1, cutoff=0 if containing else 0.6)


def nearest(word: str, options: Iterable[str]) -> str:
    """``did_you_mean`` of the ``closest`` options."""
    return did_you_mean(closest(word, options))


def shorten(text: str) -> str:
    """A text of at most 80 characters, or its beginning and end."""
    return text if len(text) <= 80 else f"{text[:40]}...{text[-40:]}"
