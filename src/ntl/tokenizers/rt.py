"""Numbers in text to tokens ``_d_e_`` and back, as the Regression Transformer writes them; without torch.

A number is ``[0-9]+(\\.[0-9]+)?`` in ASCII. Its sign is text, and a comma ends it: "-1,234.5" contains 1 and 234.5.
It is rounded half up to 12 decimals; leading and trailing zeros have no token: "007.50" is ``_7_0_ _5_-1_``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache
from itertools import pairwise

from ntl.numbers.text import MAX_PLACE, MIN_PLACE, format_number, parse_place_token, place_token
from ntl.system.errors import UserError

_WORD_START = "▁"
_SIGNS = ("-", "+", "−")
UNKNOWN = "<unk>"
# After one of these, or after a variable of one letter, a sign is that of a sum or a difference.
_OPERAND = re.compile(r"(?:[0-9)\]}%]|(?<!\w)[A-Za-z])\Z")
# So it is after a number and words, such as "3 hours", unless the last word asks for another number.
_QUANTITY = re.compile(r"[0-9][^.?!;:=,(]*?([^\W\d_]+)\Z")
_CALLS = ("is", "are", "was", "be", "equal", "equals", "to", "than", "and", "or", "by", "plus", "minus", "times", "of")
_LOOK_BACK = 200
# The digits of a group of thousands.
_GROUP = 3
# What an error shows of a text.
_SHOWN = 60


def read(text: str, max_place: int = MAX_PLACE) -> tuple[str, list[float]]:
    """The text with each number as its tokens, separated by spaces, and an empty list of values.

    Tokens that the text contains already, and T5's sentinels, are unchanged.

    Raises:
        UserError: A number has more than ``max_place`` + 1 digits before its point.
    """

    def written(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        whole, digits = _digits(match[1])
        if whole > max_place + 1:
            raise UserError(
                f"{text[:_SHOWN]!r}: a number has {whole} digits before its point, and the tokens write "
                f"{max_place + 1}; set tokenizer.max_place={whole - 1}, or take a model that reads digits"
            )
        return " ".join(place_token(digit, whole - 1 - index) for index, digit in enumerate(digits))

    return _pattern(max_place).sub(written, text), []


def write(
    tokens: Sequence[str],
    text_of: Callable[[list[str]], str] | None = None,
    unwritten: Collection[str] = (UNKNOWN,),
) -> str:
    """The text of tokens: the inverse of ``read``, except for spaces.

    Tokens of decreasing places form one number, even if places are missing; a place that is not lower than the one
    before begins the next number, and so does a number token after any other token. Numbers are surrounded by spaces:
    "(3/2)" becomes "( 3 / 2 )". Two adjacent numbers are two spaces apart, so that they are not read as groups of one.

    "-12" and "- 12" are the same tokens. A sign is attached to the number after it unless an operand precedes it: a
    number, also with words after it, a closing bracket, a variable, or an unknown token: "= -12", "5 - 3",
    "3 hours - 1 hour".

    Args:
        text_of: The text of tokens that are not numbers; by default word-start marks become spaces.
        unwritten: Tokens without text, such as special ones; numbers end at them.
    """
    written, before, after_number = "", "", False
    for piece in _pieces(tokens):
        if piece.places:
            numeral = _numeral(piece.places)
            apart = after_number or (written[-1:].isdigit() and len(numeral.partition(".")[0]) == _GROUP)
            written += ("  " if apart else " " * (bool(written) and not _is_sign(before))) + numeral
            before = written
        else:
            words = [word for word in piece.words if word not in unwritten]
            gap = " " * (after_number and bool(words) and words[0].startswith(_WORD_START))
            # An unknown token may be an operand, like a number.
            known = ["0" if word == UNKNOWN else word for word in piece.words if word in (UNKNOWN, *words)]
            before = written + gap + (text_of or _join)(known)
            written += gap + (text_of or _join)(words)
        after_number = bool(piece.places)
    return written


def count_malformed(tokens: Iterable[str]) -> int:
    """Errors in the numbers among the tokens: each that ends above place 0, and each missing place, counts one."""
    places = [[place for _, place in piece.places] for piece in _pieces(tokens) if piece.places]
    ends = sum(number[-1] > 0 for number in places)
    return ends + sum(high - low > 1 for number in places for high, low in pairwise(number))


@lru_cache
def _pattern(max_place: int) -> re.Pattern[str]:
    places = "|".join(map(str, range(MIN_PLACE, max_place + 1)))
    return re.compile(rf"<extra_id_[0-9]+>|_[0-9]_(?:{places})_|([0-9]+(?:\.[0-9]+)?)")


@lru_cache(1 << 16)
def _digits(numeral: str) -> tuple[int, str]:
    """How many digits are before the point, and all digits that have a token."""
    if len(numeral.partition(".")[2]) > -MIN_PLACE:
        with localcontext(prec=len(numeral) + 1):
            numeral = format(Decimal(numeral).quantize(Decimal(f"1E{MIN_PLACE}"), ROUND_HALF_UP), "f")
    whole, _, fraction = numeral.partition(".")
    whole = whole.lstrip("0") or "0"
    return len(whole), whole + fraction.rstrip("0")


@dataclass
class _Piece:
    """One number, as digits and places, or the tokens between two."""

    places: list[tuple[int, int]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _pieces(tokens: Iterable[str]) -> list[_Piece]:
    pieces: list[_Piece] = []
    for token in tokens:
        last, parsed = (pieces[-1] if pieces else _Piece()), parse_place_token(token)
        if parsed is None:
            if not last.words:
                pieces.append(last := _Piece())
            last.words.append(token)
        else:
            if not last.places or parsed[1] >= last.places[-1][1]:
                pieces.append(last := _Piece())
            last.places.append(parsed)
    return pieces


def _numeral(places: list[tuple[int, int]]) -> str:
    lowest = places[-1][1]
    value = sum(digit * 10 ** (place - lowest) for digit, place in places)
    return format_number(Decimal(f"{value}E{lowest}"))


def _is_sign(written: str) -> bool:
    """Whether a number behind this text is signed by its last character."""
    before = written[-_LOOK_BACK:-1].rstrip()
    quantity = _QUANTITY.search(before)
    in_words = quantity is not None and quantity[1].lower() not in _CALLS
    return written.endswith(_SIGNS) and not in_words and not _OPERAND.search(before)


def _join(words: list[str]) -> str:
    return "".join(words).replace(_WORD_START, " ").removeprefix(" ")
