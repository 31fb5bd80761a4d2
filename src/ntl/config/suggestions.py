"""What a mistyped word may mean."""

import difflib
import re
from collections.abc import Iterable

PUNCTUATION = re.compile(r"[-_.]")
SIZES = ("small", "base", "medium", "large", "xl")


def did_you_mean(options: Iterable[str]) -> str:
    """``" Did you mean 'x'?"``, ``" Did you mean one of 'x', 'y'?"``, or nothing."""
    quoted = [repr(option) for option in options]
    return f" Did you mean {'one of ' if len(quoted) > 1 else ''}{', '.join(quoted)}?" if quoted else ""


def closest(word: str, options: Iterable[str]) -> list[str]:
    """The options that a mistyped word may mean: all that begin with it, else one that contains it, else a similar one.

    Case, ``-``, ``_`` and ``.`` do not count. Of a family of models the small published one comes first.
    """
    plain = {option: PUNCTUATION.sub("", option).lower() for option in options}
    asked = PUNCTUATION.sub("", word).lower()
    if family := [option for option, text in plain.items() if asked and text.startswith(asked)]:
        return sorted(family, key=lambda option: [*SIZES, option.rpartition("_")[2]].index(option.rpartition("_")[2]))[
            :8
        ]
    containing = [option for option, text in plain.items() if len(asked) > 1 and asked in text]
    if containing:
        return difflib.get_close_matches(word, containing, n=1, cutoff=0)
    similar = difflib.get_close_matches(word, plain, n=3, cutoff=0.5)
    return sorted(similar, key=lambda option: -_shared(word, option))[:1]


def _shared(first: str, second: str) -> int:
    """How many characters two texts begin with alike."""
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def nearest(word: str, options: Iterable[str]) -> str:
    """``did_you_mean`` of the ``closest`` options."""
    return did_you_mean(closest(word, options))


def shorten(text: str) -> str:
    """A text of at most 80 characters, or its beginning and end."""
    return text if len(text) <= 80 else f"{text[:40]}...{text[-40:]}"
