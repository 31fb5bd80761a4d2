r"""Numbers as people write them in a column: "1,234.50", "1 234,5", "-$5", "(12)", "12 %", "6.02 x 10^23".

    answer = value | "(" value ")" | "\boxed{" answer "}"      parentheses are a minus
    value  = [sign] [currency] [sign] digits [exponent] [unit]

Spaces and apostrophes group digits by three; of point and comma one is the decimal mark of the whole column, and the
other groups, too ("1,23,456" is a group of the Indian kind). Which one it is, is told, or a value tells that makes
sense in one way alone: "1,234" may be 1234 or 1.234, "1,5", "0,123", "1,234,567" and "1.234,5" may not. A column in
which none tells is refused, and one in which two tell different things.

Unit and currency are the same in every value of a column, and left out: 12 % is 12. A sign is a hyphen, any dash or a
minus sign. What is more than one number, a fraction, a date or a range is refused.
"""

import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from ntl.numbers.text import format_number, parse_number
from ntl.system.errors import UserError

POINT, COMMA = ".", ","
NAMES = {POINT: "point", COMMA: "comma"}
Place = tuple[str, str]  # where an answer stands, and its text
# Full-width forms as ASCII; dashes as "-"; spaces that do not break lines as spaces.
_FOLDED = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_FOLDED |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"), "-")
_FOLDED |= dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), " ") | {ord("\u2019"): "'", ord("\u02bc"): "'"}
_RAISED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
_BOXED = re.compile(r"(?:\$|\\\(|\\\[)?\s*\\boxed\s*\{([^{}]*)\}\s*(?:\$|\\\)|\\\])?\.?")
_SYMBOL = r"\\?[$¢£¤¥฿\u20a0-\u20cf]"
_CODES = (
    "AED|ARS|AUD|BDT|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KES|KRW|MXN|MYR|NGN|NOK|NZD|"
    "PEN|PHP|PKR|PLN|RON|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"
)
_VALUE = re.compile(
    rf"(?P<sign>[+-]?)\s*(?P<currency>[A-Z]{{0,3}}{_SYMBOL}|{_CODES}|(?:Rs|Fr|kr)\.?|)\s*(?P<inner>[+-]?)\s*"
    r"(?P<digits>[.,]?[0-9](?:[.,' ]?[0-9])*\.?)"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|\s*[x×·⋅*]\s*10(?:\s*(?:\^|\*\*)\s*\{?(?P<power>[+-]?[0-9]+)\}?"
    r"|(?P<raised>[⁺⁻]?[⁰¹²³⁴-⁹]+)))?"
    r"\s*(?P<unit>.*)",
    re.DOTALL,
)
# Up to three words without digits of their own: "kg", "km/h", "m2", "% p.a.", "US gallons".
_UNIT = re.compile(r"(?![xX][0-9])[^\s0-9][^\s,;:=<>~|]*(?: [^\s0-9,;:=<>~|+\-/][^\s,;:=<>~|]*){0,2}")
_LONGEST_UNIT = 30
_WHOLE = r"[0-9]+|[1-9][0-9]{{0,2}}(?P<mark>[' {groups}])[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*{indian}"
_DIGITS = {
    POINT: re.compile(
        rf"(?P<whole>{_WHOLE.format(groups=COMMA, indian='|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}')})?"
        r"(?:\.(?P<fraction>[0-9]*))?"
    ),
    COMMA: re.compile(rf"(?P<whole>{_WHOLE.format(groups=POINT, indian='')})?(?:,(?P<fraction>[0-9]+))?"),
}


class Value(NamedTuple):
    """One answer: decimal mark -> what it is with that mark, for the marks with which it is a number; and its unit."""

    numerals: Mapping[str, str]
    unit: str


def read_value(text: str) -> Value | None:
    """A text that is one number and its unit; None for any other.

    "1,234" -> {".": "1234", ",": "1.234"}, "1,5 kg" -> {",": "1.5"} and "kg". A numeral is ``[-]digits[.digits]`` with
    the zeros of the text, an exponent written out.
    """
    text = text.translate(_FOLDED).strip()
    if boxed := _BOXED.fullmatch(text):
        text = boxed[1].strip()
    if negative := text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    found = _VALUE.fullmatch(text)
    if found is None or (found["unit"] and not _is_unit(found["unit"])):
        return None
    signs = found["sign"] + found["inner"]
    if len(signs) > 1 - negative:
        return None
    raised = found["raised"] and found["raised"].translate(_RAISED)
    exponent, minus = found["exponent"] or found["power"] or raised or "", negative or signs == "-"
    numerals = {mark: _numeral(found["digits"], exponent, minus, mark) for mark in _DIGITS}
    known = {mark: numeral for mark, numeral in numerals.items() if numeral is not None}
    unit = " ".join(filter(None, [found["currency"].lstrip("\\"), found["unit"].lstrip("\\")]))
    return Value(known, unit) if known else None


def _is_unit(text: str) -> bool:
    begins = text[0] in "%‰°" or text[:2] in ("\\%", "\\$") or unicodedata.category(text[0]) in _BEGIN
    return begins and len(text) <= _LONGEST_UNIT and bool(_UNIT.fullmatch(text))


_BEGIN = ("Lu", "Ll", "Lt", "Lm", "Lo", "Sc", "So")


def _numeral(digits: str, exponent: str, minus: bool, mark: str) -> str | None:
    found = _DIGITS[mark].fullmatch(digits)
    if found is None:
        return None
    whole, fraction = re.sub(r"[^0-9]", "", found["whole"] or ""), found["fraction"] or ""
    if not whole + fraction:
        return None
    numeral = f"{whole or '0'}.{fraction}" if fraction else whole
    if exponent:
        value = parse_number(f"{numeral}e{exponent}")
        if value is None:
            return None
        numeral = format_number(value)
    return f"-{numeral}" if minus and Decimal(numeral) else numeral


class Column:
    """The answers of a column: ``see`` all, then ``settle``, then ``write`` each.

    ``mark`` is the decimal mark; without one, the answers tell it.
    """

    def __init__(self, mark: str = "") -> None:
        self.mark = mark
        self._told: dict[str, Place] = {}
        self._unsure: Place | None = None
        self._unit: tuple[str, Place] | None = None
        self.seen = self.changed = 0
        self._examples: dict[str, str] = {}

    def see(self, text: str, place: str) -> None:
        """Take note of an answer. ValueError: it is no number, or the one at another place contradicts it."""
        value, marks = read_value(text), [self.mark] if self.mark else list(_DIGITS)
        if value is None:
            raise ValueError(f"the answer {text[:60]!r} is no number with at most a unit")
        if not any(mark in value.numerals for mark in marks):
            raise ValueError(
                f"the answer {text[:60]!r} is no number with a decimal {NAMES[self.mark]}; dataset.number_format=auto "
                "reads either mark"
            )
        self.see_unit(value.unit, text, place)
        if len(value.numerals) == 1:
            (mark,) = value.numerals
            self._told.setdefault(mark, (place, text))
            if len(self._told) > 1 and not self.mark:
                at, first = self._told[POINT if mark == COMMA else COMMA]
                raise ValueError(
                    f"the answer {text[:60]!r} has a decimal {NAMES[mark]}, and {first[:60]!r} ({at}) has the other "
                    "mark; write all of them alike"
                )
        elif len(set(value.numerals.values())) > 1:
            self._unsure = self._unsure or (place, text)

    def see_unit(self, unit: str, text: str, place: str) -> None:
        """As ``see``, of an answer that is a number without text, so that nothing but its unit is to be compared."""
        if self._unit is None:
            self._unit = unit, (place, text)
        elif unit != self._unit[0]:
            other, (at, first) = self._unit
            raise ValueError(
                f"the answer {text[:60]!r} has {_unit(unit)}, and {first[:60]!r} ({at}) has {_unit(other)}; give all "
                "of them one unit, or none"
            )
        self.seen += 1

    def settle(self) -> None:
        """Decide the decimal mark. UserError where it matters and no answer tells it."""
        if not self.mark and self._unsure and not self._told:
            place, text = self._unsure
            numerals = (read_value(text) or Value({}, "")).numerals
            raise UserError(
                f"{place}: the answer {text[:60]!r} may be {numerals[POINT]} or {numerals[COMMA]}, and no other answer "
                f"tells which; dataset.number_format=point reads {numerals[POINT]}, dataset.number_format=comma "
                f"{numerals[COMMA]}."
            )
        self.mark = self.mark or next(iter(self._told), POINT)

    def write(self, text: str) -> str:
        """The numeral of an answer that was seen."""
        value = read_value(text)
        assert value is not None
        numeral = value.numerals[self.mark]
        if numeral != text:
            self.changed += 1
            if len(self._examples) < 3:
                self._examples.setdefault(re.sub(r"[0-9]+", "0", text), f"{text[:30].strip()} -> {numeral[:30]}")
        return numeral

    @property
    def said(self) -> str:
        """What was changed, as one line; empty if nothing was."""
        if not self.changed:
            return ""
        left_out = f"; {_unit(self._unit[0])} is left out" if self._unit and self._unit[0] else ""
        examples = ", ".join(self._examples.values())
        return f"{self.changed:,} of {self.seen:,} answers rewritten: {examples}{left_out}"


def _unit(unit: str) -> str:
    return f"the unit {unit!r}" if unit else "no unit"
