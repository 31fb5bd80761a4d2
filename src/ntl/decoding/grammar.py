"""The grammar of numbers over tokens: which tokens may follow a prefix, and where a number may end.

    number = white-space* [sign] (digits ["." digits*] | "." digits)      sign = "+" | "-" | U+2212

as ``ntl.numbers.parse_number`` reads it, without commas and exponents. White space before the number is a word-start
mark or a leading space; it is stripped from an answer, as in ``ntl.decoding.generation``.

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
# The prefix so far: white space only; a sign; digits; digits and a point; a point alone; digits after a point.
START, SIGN, WHOLE, POINT, BARE, FRACTION = range(6)
ENDS = (WHOLE, POINT, FRACTION)
_ON_DIGIT = {START: WHOLE, SIGN: WHOLE, WHOLE: WHOLE, POINT: FRACTION, BARE: FRACTION, FRACTION: FRACTION}
_ON_POINT = {START: BARE, SIGN: BARE, WHOLE: POINT}


def advance(state: int, text: str) -> int:
    """The state after ``text``; DEAD where no number continues like this."""
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
    """The tokens that numbers consist of.

    ids: (K,) int64. pieces: the text that each adds. table: (6, K) int64, the state after a token in each state.
    end_id: the token that ends an answer.
    """

    ids: Tensor
    pieces: tuple[str, ...]
    table: Tensor
    end_id: int

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, device: torch.device | str = "cpu") -> Self:
        """From decoded pieces, so that ``▁12`` and ``Ġ12`` both add " 12". UserError: the tokenizer has no digit."""
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
    # Decoded on its own, a token loses the white space of its word-start mark.
    first = next((token_id for token_id in ids if DIGITS & set(tokenizer.decode([token_id]))), ids[0])
    before = tokenizer.decode([first])
    for token_id, text in zip(ids, tokenizer.batch_decode([[first, token_id] for token_id in ids]), strict=True):
        if text.startswith(before):
            yield token_id, text.removeprefix(before)
