"""Numbers in a sentence as a person reads them, where the plain grammar of ``ntl.numbers`` would find only a part.

    1/2, 3⁄4, ½, 2 1/2      the value where it is a finite decimal, else a numeral that cannot be scored
    10², 2³⁴                a power: cannot be scored
    1 234                   1234 where a no-break or thin space separates the groups, or where an answer begins so
    -$5, −€5                -5

Percent and currency signs beside a number, U+2212 and thousands commas are the plain grammar's own.
"""

import math
import re
import unicodedata
from decimal import Decimal
from fractions import Fraction

from ntl.numbers import find_numbers

_VULGAR = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_SPECIAL = re.compile(rf"[/⁄{_VULGAR}{_POWERS}\u00a0\u2009\u202f]|[-−][$€£¥]")
_GROUPS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:[\u00a0\u2009\u202f][0-9]{3})+(?![0-9])")
_SPACED = re.compile(r"\A([^0-9]*)([1-9][0-9]{0,2}(?: [0-9]{3})+)(?![0-9])")
# After an operand, the sign is a minus between two amounts.
_UNARY = r"(?<![\w.)\]}%])[-+−]"
_SIGNED_AMOUNT = re.compile(rf"({_UNARY})[$€£¥](?=[0-9.])")
_NUMERAL = r"[0-9]{1,18}(?:,[0-9]{3}){0,6}(?:\.[0-9]{1,18})?"
_COMPOUND = re.compile(
    rf"(?P<sign>{_UNARY})?(?<![0-9])(?:"
    rf"(?:(?P<mixed>[0-9]{{1,18}}) )?(?P<top>{_NUMERAL}) ?[/⁄] ?(?P<bottom>{_NUMERAL})(?P<chain>(?: ?[/⁄] ?[0-9]+)*)"
    rf"|(?P<whole>[0-9]{{0,18}}) ?(?P<vulgar>[{_VULGAR}])"
    rf"|{_NUMERAL}[{_POWERS}]+)"
)


def read_numbers(text: str) -> list[Decimal | None]:
    """The numbers of a text in order; None for a numeral whose value is not a finite decimal."""
    if not _SPECIAL.search(text):
        return [*find_numbers(text)]
    text = _GROUPS.sub(lambda match: re.sub(r"\s", "", match[0]), text)
    text = _SIGNED_AMOUNT.sub(r"\1", text)
    values: list[Decimal | None] = []
    rest = 0
    for match in _COMPOUND.finditer(text):
        values += find_numbers(_after(text, rest, match.start()))
        values += _values(match)
        rest = match.end()
    return [*values, *find_numbers(_after(text, rest, len(text)))]


def read_marked(text: str) -> list[Decimal | None]:
    """The same for a text that begins with its number, where 1 234 is one number."""
    return read_numbers(_SPACED.sub(lambda match: match[1] + match[2].replace(" ", ""), text))


def _after(text: str, start: int, end: int) -> str:
    # A sign right after a fraction is a minus, as after any word.
    return f"x{text[start:end]}" if start else text[:end]


def _values(match: re.Match[str]) -> list[Decimal | None]:
    before: list[Decimal | None] = []
    value = None
    if match["vulgar"]:
        top, _, bottom = unicodedata.normalize("NFKC", match["vulgar"]).partition("⁄")
        value = int(match["whole"] or 0) + Fraction(int(top), int(bottom))
    elif match["top"] and not match["chain"]:
        top, bottom = (Fraction(match[name].replace(",", "")) for name in ("top", "bottom"))
        value = top / bottom if bottom else None
        if match["mixed"] and value is not None and value < 1:
            value += int(match["mixed"])
        elif match["mixed"]:
            before.append(Decimal(match["mixed"]))
    sign = -1 if match["sign"] in ("-", "−") and not before else 1
    return [*before, None if value is None else _finite_decimal(sign * value)]


def _finite_decimal(value: Fraction) -> Decimal | None:
    places, bottom = 0, value.denominator
    while (factor := math.gcd(bottom, 10)) > 1:
        bottom //= factor
        places += 1
    return Decimal(f"{(value * 10**places).numerator}E-{places}") if bottom == 1 else None
