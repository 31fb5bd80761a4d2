r"""Numbers as people write them in a column: "1,234.50", "1 234,5", "-$5", "(12)", "12 %", "6.02 x 10^23".

    answer = value | "(" value ")" | "\boxed{" answer "}"      parentheses are a minus
    value  = [sign] [currency] [sign] digits [exponent | power] [unit]

Spaces and apostrophes group digits by three; of point and comma one is the decimal mark of the whole column, and the
other groups, too ("1,23,456" is a group of the Indian kind). "1,234" may be 1234 or 1.234; "1,5", "0,123", "1,234,567"
and "1.234,5" can be read in one way alone, and tell the mark of their column. A sign is a hyphen, any dash or a minus
sign. What is more than one number, a fraction, a date or a range is refused. ``ntl.numbers.answers`` reads texts.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, DecimalException, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import NamedTuple

from ntl.numbers.text import format_number, parse_number
from ntl.system.errors import UserError

POINT, COMMA = ".", ","
NAMES = {POINT: "point", COMMA: "comma"}
# Full-width forms as ASCII; dashes as "-"; spaces that do not break lines as spaces.
FOLDED = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
FOLDED |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"), "-")
FOLDED |= dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), " ") | {ord("\u2019"): "'", ord("\u02bc"): "'"}
_RAISED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
_IN_BRACES = r"\{(?:[^{}]++|%s)*+\}"
_BRACES = _IN_BRACES % (_IN_BRACES % (_IN_BRACES % r"\{[^{}]*+\}"))
BOXED = rf"\\f?boxed\s*\{{(?P<boxed>(?:[^{{}}]++|{_BRACES})*+)(?:\}}|\Z)"
_ONLY_BOXED = re.compile(rf"(?:\$|\\\(|\\\[)?\s*{BOXED}\s*(?:\$|\\\)|\\\])?\.?")
_CODES = (
    "AED|ARS|AUD|BDT|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KES|KRW|MXN|MYR|NGN|NOK|NZD|"
    "PEN|PHP|PKR|PLN|RON|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"
)
CURRENCY = rf"[A-Z]{{0,3}}\\?[$¢£¤¥฿\u20a0-\u20cf]|{_CODES}|(?:Rs|Fr|kr)\.?"
# Digits with whatever separates them, which may be no number: "1,,2", "12:30".
RUN = (
    r"(?P<run>(?<![0-9][ .,])[1-9][0-9]{0,2}(?: [0-9]{3})+(?![0-9])(?:[.,][0-9]+)*"
    r"|(?:(?<![\w.,])[.,])?[0-9]+(?:(?:[.,:_]+|')[0-9]+)*)"
)
EXPONENT = (
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<times>\s*(?:[xX×·⋅*∙∗⨯✕]|\\times|\\cdot)\s*10)?"
    r"(?:(?:\s*\^\s*|\*\*)[{(]?(?P<power>[+-]?[0-9]+)[)}]?|(?P<raised>[⁺⁻]?[⁰¹²³⁴-⁹]+)))?"
)
_SIGNS = rf"(?P<sign>[+-]?)\s*(?P<currency>{CURRENCY}|)\s*(?P<inner>[+-]?)\s*"
_VALUE = re.compile(rf"{_SIGNS}{RUN}\.?{EXPONENT}\s*(?P<unit>.*)", re.DOTALL)
EXACT = Context(prec=1000, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
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


def last_boxed(text: str) -> str:
    r"""The content of the last \boxed{...} of a text; empty without one."""
    return next((match["boxed"] for match in reversed([*re.finditer(BOXED, text)])), "")


def read_value(text: str) -> Value | None:
    """A text that is one number and its unit; None for any other.

    "1,234" -> {".": "1234", ",": "1.234"}, "1,5 kg" -> {",": "1.5"} and "kg". A numeral is ``[-]digits[.digits]`` with
    the zeros of the text, an exponent written out.
    """
    text = text.translate(FOLDED).strip()
    if boxed := _ONLY_BOXED.fullmatch(text):
        text = boxed["boxed"].strip()
    if negative := text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    match = _VALUE.fullmatch(text)
    if match is None or (match["unit"] and not _is_unit(match["unit"])):
        return None
    signs = match["sign"] + match["inner"]
    if len(signs) > 1 - negative:
        return None
    minus = "-" * (negative or signs == "-")
    read = {mark: value_of(match, mark) for mark in _DIGITS}
    numerals = {mark: minus * bool(one[1]) + (one[0] or format_number(one[1])) for mark, one in read.items() if one}
    unit = " ".join(filter(None, [match["currency"].lstrip("\\"), match["unit"].lstrip("\\")]))
    return Value(numerals, unit) if numerals else None


def _is_unit(text: str) -> bool:
    begins = text[0] in "%‰°" or text[:2] in ("\\%", "\\$") or unicodedata.category(text[0]) in _BEGIN
    return begins and len(text) <= _LONGEST_UNIT and bool(_UNIT.fullmatch(text))


_BEGIN = ("Lu", "Ll", "Lt", "Lm", "Lo", "Sc", "So")


def value_of(match: re.Match[str], mark: str = POINT) -> tuple[str, Decimal] | None:
    """The numeral of a match of RUN and EXPONENT, empty with an exponent, and its value; None for no number."""
    if (digits := _DIGITS[mark].fullmatch(match["run"])) is None:
        return None
    whole, fraction = re.sub(r"[^0-9]", "", digits["whole"] or ""), digits["fraction"] or ""
    numeral = f"{whole or '0'}.{fraction}" if fraction else whole
    power = match["power"] or (match["raised"] or "").translate(_RAISED)
    exponent = match["exponent"] or power
    try:
        is_power = power and not match["times"]
        text = str(EXACT.power(Decimal(numeral), Decimal(power[:9]))) if is_power else f"{numeral}e{exponent or 0}"
    except DecimalException:
        return None
    return None if (value := parse_number(text)) is None else ("" if exponent else numeral, value)


def rewrite(answers: Sequence[tuple[str, str]], mark: str = "") -> tuple[list[str], str]:
    """The numerals of a column of answers, each behind its place, and one line on what was changed, empty if nothing.

    ``mark`` is the decimal mark; without one, the answers tell it. Unit and currency, one and the same in all, are left
    out. UserError: an answer is no number, two contradict each other, or none tells the mark where it matters.
    """
    values, marks, unsure, first_unit = list[Value](), dict[str, str](), "", ""
    for place, text in answers:
        value, shown = read_value(text), f"{place}: the answer {text[:60]!r}"
        if value is None:
            raise UserError(f"{shown} is no number with at most a unit; write it so, or leave the row out.")
        if mark and mark not in value.numerals:
            raise UserError(
                f"{shown} is no number with a decimal {NAMES[mark]}; dataset.number_format=auto reads either mark."
            )
        if values and value.unit != values[0].unit:
            raise UserError(f"{shown} has {_unit(value.unit)}, and {first_unit}; give all of them one unit, or none.")
        first_unit = first_unit or f"{text[:60]!r} ({place}) has {_unit(value.unit)}"
        if len(value.numerals) == 1:
            marks.setdefault(next(iter(value.numerals)), f"{text[:60]!r} ({place})")
        elif len(set(value.numerals.values())) > 1:
            ways = [f"dataset.number_format={NAMES[char]} reads {value.numerals[char]}" for char in (POINT, COMMA)]
            both = " or ".join(value.numerals[char] for char in (POINT, COMMA))
            unsure = unsure or f"{shown} may be {both}, and no other answer tells which; {', '.join(ways)}."
        values.append(value)
    if not mark and len(marks) > 1:
        raise UserError(f"{marks[POINT]} has a decimal point, and {marks[COMMA]} a decimal comma; write all alike.")
    if not mark and unsure and not marks:
        raise UserError(unsure)
    mark = mark or next(iter(marks), POINT)
    numerals = [value.numerals[mark] for value in values]
    changed = [(text, new) for (_, text), new in zip(answers, numerals, strict=True) if text != new]
    if not changed:
        return numerals, ""
    left_out = f"; {_unit(values[0].unit)} is left out" if values[0].unit else ""
    example = f"{changed[0][0][:30]} -> {changed[0][1][:30]}"
    return numerals, f"{len(changed):,} of {len(answers):,} answers rewritten, the first {example}{left_out}"


def _unit(unit: str) -> str:
    return f"the unit {unit!r}" if unit else "no unit"
