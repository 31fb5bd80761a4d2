"""Numbers without torch: find, parse and format them in text; the log scale; tokens of digits at decimal places.

Text has one grammar, and its values are exact:

    number   = [sign] (whole [fraction] | fraction) [exponent]
    sign     = "+" | "-"                     U+2212 (minus sign) is read as "-"
    whole    = digits | proper thousands groups: "1,234,567", never "0,123" or "12,34"
    fraction = "." digits                    the digits may be missing after a whole part: "5."
    exponent = ("e" | "E") ["+" | "-"] digits

Digits are ASCII. A numeral whose magnitude lies outside 10^±MAX_EXPONENT, such as "1e999999999", is not a number, so
that it is never computed with or written out. All functions of text take linear time and accept any text.

The Regression Transformer (Born and Manica, 2023) writes the digit d at place e as the token ``_d_e_`` of value
d x 10^e: 12.3 is ``_1_1_ _2_0_ _3_-1_``.
"""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_EXPONENT = 50_000
# The range of places in the paper's 320 tokens.
MIN_PLACE = -12
MAX_PLACE = 19
_PLACE_TOKEN = re.compile(r"_([0-9])_(0|-?[1-9][0-9]*)_")

# Possessive quantifiers (++, *+) prevent backtracking. After a digit or a word, a sign is a binary operator ("5-3",
# "x-3") and a leading point is punctuation ("fig.5", "3.4.5").
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)\]}%])[+-])?"
    r"(?P<body>[0-9]++(?:,[0-9]++)*+(?:\.[0-9]*+)?|(?<![\w.])\.[0-9]++)"
    r"(?P<exponent>[eE][+-]?[0-9]++)?"
)
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})++(?:\.[0-9]*+)?")
_PAPER_NUMBER = re.compile(r"(?:[+-]\s*+)?\d++(?:\.\d++)?")


def parse_number(text: str) -> Decimal | None:
    """Return the exact value of a text that is a single number, apart from surrounding white space; otherwise None.

    "-1,234.50" -> Decimal("-1234.50"), ".5", "5.", "1e-3"; None for "", "1,23", "5 apples", "1 000", "٣", "inf".
    """
    match = _NUMBER.fullmatch(_fold(text).strip())
    numerals = _numerals(match) if match else []
    return _decimal(numerals[0]) if len(numerals) == 1 else None


def number_spans(text: str) -> list[tuple[int, int, Decimal]]:
    """Return (start, end, exact value) of each number in a text, in order.

    A sign belongs to a number if it touches it and the character before it does not end an operand: "5-3", "x-3" and
    "5 - 3" contain 3, "= -3" and "5 -3" contain -3. Commas that are no proper thousands separators separate the items
    of a list and belong to no number: "1,2,3" contains three numbers, "1,234" one.
    """
    spans = []
    for match in _NUMBER.finditer(_fold(text)):
        numerals = _numerals(match)
        widths = map(len, numerals) if len(numerals) > 1 else [len(match.group())]
        end = match.start() - 1
        for numeral, width in zip(numerals, widths, strict=True):
            start, end = end + 1, end + 1 + width
            value = _decimal(numeral)
            if value is not None:
                spans.append((start, end, value))
    return spans


def last_number_paper(text: str) -> Decimal | None:
    """Return the answer by the paper's rule: the last match of sign, white space, digits and optional ".digits".

    This reproduces the paper's scores, including its quirks: no commas ("1,234" -> 234), no exponent ("1e5" -> 5), no
    leading point (".5" -> 5), a binary minus is read as a sign ("5 - 3" -> -3), and Unicode digits count. A number
    beyond floats is ±inf. None without a match, or where the original crashed: at a line end between sign and digits.
    """
    matches = _PAPER_NUMBER.findall(text)
    try:
        return Decimal(repr(float(matches[-1].replace(" ", "")))) if matches else None
    except ValueError:
        return None


def format_number(value: Decimal) -> str:
    """Return the canonical numeral: no exponent, no commas, no trailing zeros, no "-0". Equal values give equal text.

    Raises ValueError for a value that is not finite or lies outside 10^±MAX_EXPONENT.
    """
    if not _in_range(value):
        raise ValueError(f"the value is not finite, or its magnitude lies outside 10^±{MAX_EXPONENT}")
    # Only string operations from here on: arithmetic, unary minus and normalize() round to the context's precision.
    numeral = format(value, "f")
    if "." in numeral:
        numeral = numeral.rstrip("0").rstrip(".")
    return numeral if value else "0"


def _fold(text: str) -> str:
    return text.replace("\N{MINUS SIGN}", "-")


def _numerals(match: re.Match[str]) -> list[str]:
    """Return the match as numerals without commas: one, or several if its commas separate the items of a list."""
    sign, body, exponent = match.groups(default="")
    numerals = [body.replace(",", "")] if _GROUPED.fullmatch(body) else body.split(",")
    numerals[0] = sign + numerals[0]
    numerals[-1] += exponent
    return numerals


def _decimal(numeral: str) -> Decimal | None:
    try:
        value = Decimal(numeral)
    except InvalidOperation:  # the exponent is out of Decimal's own range
        return None
    return value if _in_range(value) else None


def _in_range(value: Decimal) -> bool:
    return value.is_finite() and abs(value.adjusted()) <= MAX_EXPONENT


def signed_log(x: Any) -> Any:
    """Return sign(x) · log10(|x| + 1) of a float or of an array: odd, increasing, 0 at 0 and 1 at 9."""
    import numpy as np

    x = np.asarray(x, dtype=np.float64)
    return (np.sign(x) * np.log10(np.abs(x) + 1))[()]


def place_token(digit: int | str, place: int) -> str:
    """Return the token of ``digit`` x 10^``place``."""
    return f"_{digit}_{place}_"


def place_tokens() -> tuple[str, ...]:
    """Return the paper's 320 tokens: all digits of each place, the lowest place first."""
    return tuple(place_token(digit, place) for place in range(MIN_PLACE, MAX_PLACE + 1) for digit in range(10))


def parse_place_token(token: str) -> tuple[int, int] | None:
    """Return the digit and the place of a token, or None if it is not a place token."""
    match = _PLACE_TOKEN.fullmatch(token)
    return (int(match[1]), int(match[2])) if match else None


def find_place_tokens(vocab: Mapping[str, int]) -> dict[int, tuple[int, int]]:
    """Return {token id: (digit, place)} for the place tokens of a vocabulary {token: id}, by ascending id."""
    places = {token_id: parsed for token, token_id in vocab.items() if (parsed := parse_place_token(token))}
    return dict(sorted(places.items()))
