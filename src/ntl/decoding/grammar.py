"""Numbers written by tokens: which tokens may follow, and where a number may end.

    number = white-space* [sign] (digits ["." digits*] | "." digits)      sign = "+" | "-" | U+2212

as ``ntl.numbers.parse_number`` reads it, without commas and exponents. White space before the number is a word-start
mark or a leading space; an answer loses it, as it does in ``ntl.decoding.generation``.

Shapes: K tokens that occur in numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ntl.system.errors import UserError

DIGITS = frozenset("0123456789")
SIGNS = frozenset("+-\N{MINUS SIGN}")
DEAD = -1
# What was read: nothing but white space; a sign; digits; "5."; a point without digits; digits behind a point.
START, SIGN, WHOLE, POINT, BARE, FRACTION = range(6)
ENDS = (WHOLE, POINT, FRACTION)
_ON_DIGIT = {START: WHOLE, SIGN: WHOLE, WHOLE: WHOLE, POINT: FRACTION, BARE: FRACTION, FRACTION: FRACTION}
_ON_POINT = {START: BARE, SIGN: BARE, WHOLE: POINT}


def advance(state: int, text: str) -> int:
    """The state behind ``text``, DEAD where no number continues so."""
    for character in text:
        if character in DIGITS:
            state = _ON_DIGIT.get(state, DEAD)
        elif character == ".":
            state = _ON_POINT.get(state, DEAD)
        elif state == START and character in SIGNS:
            state = SIGN
        elif state != START or not character.isspace():
            state = DEAD
    return state


@dataclass(frozen=True)
class NumberTokens:
    """The tokens of which numbers are written.

    ids: (K,) int64. pieces: what each adds to a text. table: (6, K) int64, the state behind a token, or DEAD.
    end_id: the token that ends an answer.
    """

    ids: Tensor
    pieces: tuple[str, ...]
    table: Tensor
    end_id: int

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, device: torch.device | str = "cpu") -> Self:
        """By decoded pieces, whatever the vocabulary writes them as: ``▁12`` and ``Ġ12`` add " 12".

        UserError for a tokenizer without a digit.
        """
        kept = [(token_id, piece) for token_id, piece in _pieces(tokenizer) if _may_occur(piece)]
        if not any(DIGITS & set(piece) for _, piece in kept):
            raise UserError("decoding by number: the tokenizer has no token with a digit; take another tokenizer.")
        table = [[advance(state, piece) for _, piece in kept] for state in range(6)]
        return cls(
            torch.tensor([token_id for token_id, _ in kept], device=device),
            tuple(piece for _, piece in kept),
            torch.tensor(table, device=device),
            tokenizer.eos_token_id,
        )


def _may_occur(piece: str) -> bool:
    return bool(piece) and any(advance(state, piece) != DEAD for state in range(6))


def _pieces(tokenizer: Any) -> Iterator[tuple[int, str]]:
    ids = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
    # Behind another token a decoder leaves the white space of a word-start mark.
    first = next((token_id for token_id in ids if DIGITS & set(tokenizer.decode([token_id]))), ids[0])
    before = tokenizer.decode([first])
    for token_id, text in zip(ids, tokenizer.batch_decode([[first, token_id] for token_id in ids]), strict=True):
        if text.startswith(before):
            yield token_id, text.removeprefix(before)
