"""Numbers in text to tokens ``_d_e_`` and back, as the Regression Transformer writes them, and its tokenizer.

A number is ``[0-9]+(\\.[0-9]+)?`` in ASCII. Its sign is text, and a comma ends it: "-1,234.5" contains 1 and 234.5.
It is rounded half up to 12 decimals; leading and trailing zeros have no token: "007.50" is ``_7_0_ _5_-1_``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerFast

from ntl.numbers.text import MAX_PLACE, MIN_PLACE, format_number, parse_place_token, place_token, place_tokens
from ntl.system.errors import UserError

_WORD_START = "▁"
_SIGNS = ("-", "+", "−")
UNKNOWN = "<unk>"
# After one of these, or after a variable of one letter, a sign means a sum or a difference.
_OPERAND = re.compile(r"(?:[0-9)\]}%]|(?<!\w)[A-Za-z])\Z")
# So it is after a number and words, such as "3 hours", unless the last word asks for another number.
_QUANTITY = re.compile(r"[0-9][^.?!;:=,(]*?([^\W\d_]+)\Z")
_CALLS = ("is", "are", "was", "be", "equal", "equals", "to", "than", "and", "or", "by", "plus", "minus", "times", "of")
_LOOK_BACK = 200
_PLACES = "|".join(map(str, range(MIN_PLACE, MAX_PLACE + 1)))
_READ = re.compile(rf"<extra_id_[0-9]+>|_[0-9]_(?:{_PLACES})_|([0-9]+(?:\.[0-9]+)?)")


def read(text: str) -> tuple[str, list[float]]:
    """The text with each number as its tokens, separated by spaces, and an empty list of values.

    Tokens that the text contains already, and T5's sentinels, are unchanged. UserError for a number that has more than
    20 digits before its point, as the original code's.
    """

    def written(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        whole, digits = _digits(match[1])
        if whole > MAX_PLACE + 1:
            problem = f"a number has {whole} digits before its point, and the tokens write {MAX_PLACE + 1}"
            raise UserError(f"{text[:60]!r}: {problem}; take a model that reads digits")
        return " ".join(place_token(digit, whole - 1 - index) for index, digit in enumerate(digits))

    return _READ.sub(written, text), []


def write(tokens: Sequence[str], text_of: Callable[[list[str]], str], unwritten: Collection[str]) -> str:
    """The text of tokens: the inverse of ``read``, except for spaces.

    Tokens of decreasing places form one number, even if places are missing. Numbers are surrounded by spaces: "(3/2)"
    becomes "( 3 / 2 )". Two adjacent numbers are two spaces apart, so that they are not read as groups of one. "-12"
    and "- 12" are the same tokens: a sign is attached to the number after it unless an operand precedes it, such as a
    number, also with words after it, a closing bracket, a variable, or an unknown token: "= -12", "3 hours - 1 hour".

    ``text_of`` gives the text of tokens that are not numbers. ``unwritten`` are tokens without text, such as special
    ones; numbers end at them.
    """
    written, before, after_number = "", "", False
    for piece in _pieces(tokens):
        if piece.places:
            numeral = _numeral(piece.places)
            apart = after_number or (written[-1:].isdigit() and len(numeral.partition(".")[0]) == 3)
            written += ("  " if apart else " " * (bool(written) and not _is_sign(before))) + numeral
            before = written
        else:
            words = [word for word in piece.words if word not in unwritten]
            gap = " " * (after_number and bool(words) and words[0].startswith(_WORD_START))
            # An unknown token may be an operand, like a number.
            known = ["0" if word == UNKNOWN else word for word in piece.words if word in (UNKNOWN, *words)]
            before = written + gap + text_of(known)
            written += gap + text_of(words)
        after_number = bool(piece.places)
    return written


def count_malformed(tokens: Iterable[str]) -> int:
    """Errors in the numbers among the tokens: each that ends above place 0, and each missing place, counts one."""
    places = [[place for _, place in piece.places] for piece in _pieces(tokens) if piece.places]
    ends = sum(number[-1] > 0 for number in places)
    return ends + sum(high - low > 1 for number in places for high, low in pairwise(number))


@lru_cache(1 << 16)
def _digits(numeral: str) -> tuple[int, str]:
    """How many digits are before the point, and all digits that have a token."""
    if len(numeral.partition(".")[2]) > -MIN_PLACE:
        with localcontext(prec=len(numeral) + 1):
            numeral = format(Decimal(numeral).quantize(Decimal(f"1E{MIN_PLACE}"), ROUND_HALF_UP), "f")
    whole, _, fraction = numeral.partition(".")
    whole = whole.lstrip("0") or "0"
    return len(whole), whole + fraction.rstrip("0")


class _Piece(NamedTuple):
    """One number, as digits and places, or the tokens between two."""

    places: list[tuple[int, int]]
    words: list[str]


def _pieces(tokens: Iterable[str]) -> list[_Piece]:
    pieces = [_Piece([], [])]
    for token in tokens:
        last, parsed = pieces[-1], parse_place_token(token)
        if not (last.words if parsed is None else last.places and parsed[1] < last.places[-1][1]):
            pieces.append(last := _Piece([], []))
        if parsed is None:
            last.words.append(token)
        else:
            last.places.append(parsed)
    return pieces[1:]


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


class RTTokenizer(PreTrainedTokenizerFast):
    """Reads numbers as :func:`read` does and writes them as :func:`write` does.

    Offsets refer to the text in which numbers are written as tokens.
    """

    added_tokens = staticmethod(place_tokens)

    def number_reader(self) -> Callable[[str], tuple[str, list[float]]]:
        """The function that writes the numbers of a text as tokens."""
        return read

    def count_malformed(self, ids: list[int]) -> int:
        return count_malformed(self._known(ids))

    def _encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **options: Any) -> Any:
        return super()._encode_plus(_read_all(text), _read_all(text_pair), *args, **options)

    def _decode(self, token_ids: Any, skip_special_tokens: bool = False, **options: Any) -> str:
        ids = token_ids["input_ids"] if isinstance(token_ids, dict) else token_ids
        ids = [ids] if isinstance(ids, int) else ids
        unwritten = frozenset(self.all_special_tokens if skip_special_tokens else ())
        return write(self._known(ids), self.convert_tokens_to_string, unwritten)

    def _known(self, ids: list[int]) -> list[str]:
        # An embedding may have more rows than the tokenizer has tokens.
        tokens = self.convert_ids_to_tokens(list(ids))
        return [token for token in tokens if token is not None]


def _read_all(text: Any) -> Any:
    if isinstance(text, (list, tuple)):
        return type(text)(_read_all(item) for item in text)
    return read(text)[0] if isinstance(text, str) else text
