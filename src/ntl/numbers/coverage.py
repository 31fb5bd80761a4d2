"""Which numbers of a text the number losses see, as the tokenizer writes them."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from ntl.numbers.text import find_place_tokens, number_spans

MAX_LINES = 10  # of a printed list
# The byte-fallback token of any byte except the ASCII digits.
OTHER_BYTE = re.compile("<0x(?!3[0-9])[0-9A-Fa-f]{2}>")
_DIGIT = re.compile("[0-9]")
_NUMERAL = re.compile(r"[▁Ġ ]?[+-]?[0-9]*\.?[0-9]*")


class Missed(NamedTuple):
    """A number that the loss does not see: its text, the tokens that write its digits, and the reason."""

    number: str
    pieces: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Coverage:
    """How many numbers of a sample the loss sees, and those that it does not see, in order."""

    seen: int
    missed: tuple[Missed, ...]

    @property
    def share(self) -> float:
        """The share of the numbers that are seen; NaN if there is none."""
        total = self.seen + len(self.missed)
        return self.seen / total if total else math.nan

    def __str__(self) -> str:
        """The share, and the numbers that are missed most often, each with its tokens and the reason."""
        if math.isnan(self.share):
            return "there is no number in these texts"
        lines = [f"the loss sees {self.seen:,} of {self.seen + len(self.missed):,} numbers ({self.share:.1%})"]
        counted = Counter(self.missed).most_common()
        for each, times in counted[:MAX_LINES]:
            often = f" ({times} times)" if times > 1 else ""
            lines.append(f"  {each.number}{often} as {' '.join(each.pieces)!r}: {each.reason}")
        if len(counted) > MAX_LINES:
            lines.append(f"  and {len(counted) - MAX_LINES:,} more")
        return "\n".join(lines)


def coverage(texts: Iterable[str], tokenizer: Any, number_ids: Set[int]) -> Coverage:
    """Find the numbers of all texts (``ntl.numbers.text.number_spans``) and how the tokenizer writes each.

    The loss sees a number if every token that writes one of its digits is a number token. Signs, points and commas do
    not count: as tokens of their own they have no value.

    Args:
        texts: A sample of what the model is trained on.
        tokenizer: One of transformers or of tokenizers, which says where in the text each token is. Of any other, and
            of one with tokens ``_d_e_``, each number is encoded alone, after a space.
        number_ids: The ids of the number tokens.

    Raises TypeError if ``texts`` is a single text.
    """
    if isinstance(texts, str):
        raise TypeError("texts is a single str: give a list of texts")
    vocab = tokenizer.get_vocab()
    names, unknown = {token_id: token for token, token_id in vocab.items()}, getattr(tokenizer, "unk_token_id", None)
    seen, missed = 0, []
    for text in texts:
        placed = None if find_place_tokens(vocab) else _placed(tokenizer, text)
        for start, end, _ in number_spans(text):
            if placed is None:
                encoded = tokenizer.encode(f" {text[start:end]}")
                ids = [i for i in getattr(encoded, "ids", encoded) if _has_digit(names.get(i, ""))]
            else:
                touching = [i for i, first, last in placed if _DIGIT.search(text[max(first, start) : min(last, end)])]
                # T5's "▁" before a number is placed on its first digit.
                ids = [i for i in touching if i == unknown or _has_digit(names.get(i, ""))] or touching
            outside = [token_id for token_id in ids if token_id not in number_ids]
            if ids and not outside:
                seen += 1
            else:
                pieces = tuple(names.get(token_id, f"<id {token_id}>") for token_id in ids)
                missed.append(Missed(text[start:end], pieces, _reason(outside, names, unknown)))
    return Coverage(seen, tuple(missed))


def _placed(tokenizer: Any, text: str) -> list[tuple[int, int, int]] | None:
    """The id of each token, and where it begins and ends in the text; None if the tokenizer does not say where."""
    try:
        if callable(tokenizer):
            found: Any = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
            ids, spans = found["input_ids"], found["offset_mapping"]
        else:  # of tokenizers
            found = tokenizer.encode(text)
            ids, spans = found.ids, found.offsets
    except (NotImplementedError, AttributeError):
        return None
    return [(token_id, *span) for token_id, span in zip(ids, spans, strict=True)]


def _has_digit(token: str) -> bool:
    return bool(_DIGIT.search(OTHER_BYTE.sub("", token)))


def _reason(outside: list[int], names: dict[int, str], unknown: int | None) -> str:
    written = [names.get(token_id, "") for token_id in outside]
    if unknown in outside:
        return "an unknown token, which stands for any text"
    if not any(map(_has_digit, written)):
        return "no token has its digits"
    if mixed := [name for name in written if not _NUMERAL.fullmatch(name)]:
        return f"{mixed[0]!r} is part number, part other text"
    return f"{written[0]!r} is not a number token of this loss"
