"""The number tokens of the Regression Transformer (Born and Manica, 2023): digits at decimal places. Without torch.

The token ``_d_e_`` is the digit d at place e and has the value d x 10^e: 12.3 is ``_1_1_ _2_0_ _3_-1_``.
"""

import re
from collections.abc import Mapping

# The range of places in the paper's 320 tokens.
MIN_PLACE = -12
MAX_PLACE = 19
_TOKEN = re.compile(r"_([0-9])_(0|-?[1-9][0-9]*)_")


def place_token(digit: int | str, place: int) -> str:
    """Return the token of ``digit`` x 10^``place``."""
    return f"_{digit}_{place}_"


def place_tokens(first: int = MIN_PLACE, last: int = MAX_PLACE) -> tuple[str, ...]:
    """Return the tokens of all digits for each place from first to last, both included; by default the paper's 320."""
    return tuple(place_token(digit, place) for place in range(first, last + 1) for digit in range(10))


def parse_place_token(token: str) -> tuple[int, int] | None:
    """Return the digit and the place of a token, or None if it is not a place token."""
    match = _TOKEN.fullmatch(token)
    return (int(match[1]), int(match[2])) if match else None


def find_place_tokens(vocab: Mapping[str, int]) -> dict[int, tuple[int, int]]:
    """Return {token id: (digit, place)} for the place tokens of a vocabulary {token: id}, by ascending id."""
    found = {token_id: parsed for token, token_id in vocab.items() if (parsed := parse_place_token(token))}
    return dict(sorted(found.items()))
