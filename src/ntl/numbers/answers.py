r"""The number that a text gives as its answer, and the numbers of a list.

Numbers of a text are read as a person does: numerals, signs, currencies and exponents as in
``ntl.numbers.written``, with a decimal point; beyond these::

    1/2, 3⁄4, ½, 2 1/2, \frac{3}{4}     a fraction, by its value where it is a finite decimal
    1,,2, 1.2.3, 12:30, --5, \sqrt{2}   no number
    cm^2, x^3                           the power of a unit or of a variable is left out

A sign may be apart from its number where a number begins: at the start of the text, or after "=", ":" or "(".
"""

import json
import re
import unicodedata
from decimal import Decimal, DecimalException
from fractions import Fraction
from typing import Any

from ntl.numbers.text import parse_number
from ntl.numbers.written import CURRENCY, EXACT, EXPONENT, FOLDED, RUN, last_boxed, value_of

ANSWER_MARK = "####"  # GSM8K: the final answer stands after it

# JOIN stands before a fraction, NONE for what is no finite decimal. A full-width comma or colon divides sentences.
_JOIN, _NONE = "\u2064", "\0"
_FOLDED = {**FOLDED, 0xFF0C: ", ", 0xFF1A: ": ", ord(_JOIN): "", ord(_NONE): " "}
_FOLDED |= {ord(char): _JOIN + unicodedata.normalize("NFKC", char) for char in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
_LATEX = [
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\\!", ""),
        (r"\{,\}", ","),
        (r"\\[,;: ]|~", " "),
        (r"\\(?:text|math|mbox)[a-z]*\s*\{([^{}]*)\}", r"\1"),
        (r"\^\s*\{([^{}]*)\}|<sup>([^<]*)</sup>", r"^(\1\2)"),
    )
]
_ROOT = re.compile(
    r"(?:\\sqrt(?:\[[^][]*\])?|√)\s*(?:\{[^{}]*\}|\([^()]*\)|[0-9.]+)|\\pi(?![A-Za-z])|(?<![^\W0-9_])π(?!\w)"
)
_FRACTION = re.compile(r"\\[cdt]?frac\s*(?:\{([^{}]*)\}|([0-9]))\s*(?:\{([^{}]*)\}|([0-9]))")
_WIDE_GROUPS = re.compile("(?<=[０-９])，(?=[０-９]{3})")
_DEEPEST = 8  # of fractions and roots in each other
_PART = r"[0-9]{1,18}(?:,[0-9]{3}){0,6}(?:\.[0-9]{1,18})?"
_MAGNITUDES = {"hundred": 2, "thousand": 3, "k": 3, "lakh": 5, "million": 6, "mn": 6, "m": 6, "crore": 7}
_MAGNITUDES |= {"billion": 9, "bn": 9, "b": 9, "trillion": 12, "t": 12}
_WORDS = "hundred|thousand|lakh|million|crore|billion|trillion"
# After an operand, a sign is a minus between two amounts.
_NUMBER = re.compile(
    r"\^\s*[{(]?[+-]?[0-9]+"
    r"|(?P<sign>(?<![\w.)\]}%$+-])[+-]++(?!\s)|(?:(?<![\s\S])|(?<=[=:(])|(?<=[=:(] ))[+-]++\s++)?"
    rf"(?:(?:{CURRENCY})\s?(?P<inner>[+-]?))?"
    rf"(?:(?:(?P<mixed>[0-9]{{1,18}})[ {_JOIN}]{{1,2}}|{_JOIN})?(?P<top>{_PART}) ?[/⁄] ?(?P<bottom>{_PART})(?![0-9])"
    rf"|{RUN}{EXPONENT}|(?P<none>{_NONE}))(?P<more>(?: ?[/⁄] ?[0-9][0-9.,]*| ?{_NONE}|[.,:eE]+[+-]?[0-9]+)*)"
    rf"(?:(?P<magnitude>(?:\s*(?i:{_WORDS})\b)+|(?:[kKMBT]|[bm]n)\b)|\s*(?P<percent>\\?%|per ?cent\b))?"
)


def find_values(text: str, *, magnitudes: bool = False, percent: bool = False) -> list[Decimal | None]:
    """The numbers of a text in order; None for one whose value is not a finite decimal.

    ``magnitudes``: "2.5 million" and "$2.5M" are 2500000, else 2.5. ``percent``: "12%" is 0.12, else 12.
    """
    text = _WIDE_GROUPS.sub(",", text).translate(_FOLDED)
    if any(char in text for char in "\\{~√π<"):
        for pattern, new in _LATEX:
            text = pattern.sub(new, text)
        for _ in range(_DEEPEST):
            text, old = _FRACTION.sub(_divided, _ROOT.sub(_NONE, text)), text
            if text == old:
                break
    return [_decimal(match, magnitudes, percent) for match in _NUMBER.finditer(text) if match[0][0] != "^"]


def _divided(match: re.Match[str]) -> str:
    # The text of a fraction whose parts are one number each.
    parts = [_NUMBER.fullmatch(part.strip()) for part in match.groups() if part is not None]
    top, bottom = (_exact(part) if part else None for part in parts)
    ratio = Fraction(top) / Fraction(bottom) if top is not None and bottom else None
    if ratio is None or max(abs(ratio.numerator), ratio.denominator) >= 10**18:
        return _NONE
    return f"{'-' * (ratio < 0)}{_JOIN}{abs(ratio.numerator)}⁄{ratio.denominator}"


def _exact(match: re.Match[str]) -> Decimal | Fraction | None:
    signs = (match["sign"] or "").strip() + (match["inner"] or "")
    if match["more"] or len(signs) > 1:
        return None
    if match["run"]:
        read = value_of(match)
        return read and (read[1].copy_negate() if signs == "-" else read[1])
    if not match["top"]:
        return None
    top, bottom = (Fraction(match[name].replace(",", "")) for name in ("top", "bottom"))
    if not bottom or (match["mixed"] and top >= bottom):
        return None
    return (top / bottom + int(match["mixed"] or 0)) * (-1 if signs == "-" else 1)


def _decimal(match: re.Match[str], magnitudes: bool, percent: bool) -> Decimal | None:
    value, places = _exact(match), -2 if percent and match["percent"] else 0
    if magnitudes and match["magnitude"]:
        places = sum(_MAGNITUDES[word] for word in match["magnitude"].lower().split())
    try:
        if isinstance(value, Fraction):
            value = EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
        return EXACT.scaleb(value, places) if value is not None and places else value
    except DecimalException:
        return None


def find_answer(text: str, **options: bool) -> Decimal | None:
    """The answer by the default rule, as ``ntl.evaluation.extract_answer`` says, or None."""
    whole = parse_number(text)
    if whole is not None:
        return whole
    # The first mark: a model that continues with a question of its own answers that one, too.
    if marked := find_values(text.partition(ANSWER_MARK)[2].strip(), **options):
        return marked[0]
    numbers = find_values((last_boxed(text) or text).strip(), **options)
    return numbers[-1] if numbers else None


def read_list(text: str) -> dict[int | str, Decimal] | None:
    """The numbers of a list in order, by their position from 1, or by their name; None for any other text, or none.

    It is JSON, [1, 2.5] or {"a": 1, "b": 2.5}, or has one separator throughout: a comma and white space, white space,
    or a comma. With the first two a number may have thousands separators: "1,234 5" is two, "1,234" is 1 and 234.
    """
    text = text.strip()
    if text[:1] in ("[", "{"):
        # Of an object, a list of its pairs, whose names may occur twice.
        decoder = json.JSONDecoder(parse_int=parse_number, parse_float=parse_number, object_pairs_hook=list)
        try:
            decoded: Any = decoder.decode(text)
        except (ValueError, RecursionError):
            return None
        pairs: list[tuple[int | str, Any]] = decoded if text[0] == "{" else [*enumerate(decoded, 1)]
    else:
        text = " ".join(text.split())
        separator = next((pattern for pattern in (" ?, | ,", " ") if re.search(pattern, text)), ",")
        pairs = [*enumerate(map(parse_number, re.split(separator, text)), 1)]
    named: dict[int | str, Decimal] = dict(pairs)
    return named if 0 < len(named) == len(pairs) and all(isinstance(number, Decimal) for _, number in pairs) else None
