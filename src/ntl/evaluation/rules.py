r"""The rules that turn texts into numbers and compare these with answers, each with a name.

Whoever changes a rule raises its version in ``ntl.evaluation.metrics``.

The default rule reads numbers as a person does: numerals, signs, currencies and exponents are those of
``ntl.numbers.written``, with a decimal point; beyond these::

    1/2, 3⁄4, ½, 2 1/2, \frac{3}{4}     a fraction, by its value where it is a finite decimal
    1,,2, 1.2.3, 12:30, --5, \sqrt{2}   no number
    cm^2, x^3                           the power of a unit or of a variable is left out

A sign may be apart from its number where a number begins: at the start of the text, or after "=", ":" or "(".
"""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, DecimalException
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ntl.evaluation.metrics import RULE_OPTIONS
from ntl.numbers import last_number_paper, parse_number, signed_log
from ntl.numbers.written import CURRENCY, EXACT, EXPONENT, FOLDED, RUN, last_boxed, value_of

ANSWER_MARK = "####"  # GSM8K: the final answer stands after it

PAPER_CLIP = 1e10  # original code: predictions are clipped to ±1e10, answers are not
# An operation of `decimal` is exact before it is rounded to the precision of the context, so 50 digits are enough for
# the difference of numbers of any length. The number grammar keeps exponents well within the context's range.
WIDE = Context(prec=50)
_HUNDRED = Decimal(100)
_NEAR = 1e-3  # of two logs; ours: any that leaves float64 enough digits
# JOIN stands before a fraction, NONE for what is no finite decimal. A full-width comma or colon divides sentences.
_JOIN, _NONE = "\u2064", "\0"
_FOLDED = {**FOLDED, 0xFF0C: ", ", 0xFF1A: ": ", ord(_JOIN): "", ord(_NONE): " "}
_FOLDED |= {ord(each): _JOIN + unicodedata.normalize("NFKC", each) for each in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
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
    if any(each in text for each in "\\{~√π<"):
        for pattern, new in _LATEX:
            text = pattern.sub(new, text)
        for _ in range(_DEEPEST):
            text, old = _FRACTION.sub(_divided, _ROOT.sub(_NONE, text)), text
            if text == old:
                break
    return [_decimal(found, magnitudes, percent) for found in _NUMBER.finditer(text) if found[0][0] != "^"]


def _divided(found: re.Match[str]) -> str:
    # The text of a fraction whose parts are one number each.
    parts = [_NUMBER.fullmatch(part.strip()) for part in found.groups() if part is not None]
    top, bottom = (_exact(part) if part else None for part in parts)
    ratio = Fraction(top) / Fraction(bottom) if top is not None and bottom else None
    if ratio is None or max(abs(ratio.numerator), ratio.denominator) >= 10**18:
        return _NONE
    return f"{'-' * (ratio < 0)}{_JOIN}{abs(ratio.numerator)}⁄{ratio.denominator}"


def _exact(found: re.Match[str]) -> Decimal | Fraction | None:
    signs = (found["sign"] or "").strip() + (found["inner"] or "")
    if found["more"] or len(signs) > 1:
        return None
    if found["run"]:
        read = value_of(found)
        return read and (read[1].copy_negate() if signs == "-" else read[1])
    if not found["top"]:
        return None
    top, bottom = (Fraction(found[name].replace(",", "")) for name in ("top", "bottom"))
    if not bottom or (found["mixed"] and top >= bottom):
        return None
    return (top / bottom + int(found["mixed"] or 0)) * (-1 if signs == "-" else 1)


def _decimal(found: re.Match[str], magnitudes: bool, percent: bool) -> Decimal | None:
    value, places = _exact(found), -2 if percent and found["percent"] else 0
    if magnitudes and found["magnitude"]:
        places = sum(_MAGNITUDES[word] for word in found["magnitude"].lower().split())
    try:
        if isinstance(value, Fraction):
            value = EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
        return EXACT.scaleb(value, places) if value is not None and places else value
    except DecimalException:
        return None


class Pairs(NamedTuple):
    """N compared examples. All arrays are (N,); every float array is NaN where `valid` is False, except `log_answer`.

    valid: bool, the prediction was parsed. correct, within: bool, equal, and within 1% of the answer (False where
    invalid). nonzero: bool, the answer is not 0. prediction, answer: decimals, None where invalid; by the paper's rule
    floats. error: |prediction - answer|. relative: 100 |prediction - answer| / |answer| in percent, NaN also where the
    answer is 0. log_error: difference of the signed log10. log_answer: signed log10 of the answer, less a constant. An
    error beyond float64 is inf, its signed log stays finite.
    """

    valid: NDArray
    correct: NDArray
    within: NDArray
    nonzero: NDArray
    prediction: NDArray
    answer: NDArray
    log_error: NDArray
    log_answer: NDArray
    error: NDArray
    relative: NDArray

    def take(self, chosen: NDArray | Sequence[int]) -> "Pairs":
        """The examples of a boolean mask (N,) or of a list of positions."""
        return Pairs(*(column[chosen] for column in self))


class AnswerRule(NamedTuple):
    """How a text becomes a number (None where it holds no answer), and how numbers are compared.

    short_correlation: what Pearson and Spearman are with fewer than two valid pairs.
    """

    name: str
    extract: Callable[[str], Decimal | None]
    compare: Callable[[Sequence[Decimal | None], Sequence[Decimal]], Pairs]
    short_correlation: float


def get_rule(name: str) -> AnswerRule:
    """The rule of that name; options follow it, as in "default+magnitudes+percent". ValueError names what exists."""
    rule, *options = name.split("+")
    if rule not in RULES or not {*RULE_OPTIONS}.issuperset(options) or (options and rule != "default"):
        known = f"{', '.join(RULES)}; default may be followed by +{' and +'.join(RULE_OPTIONS)}"
        raise ValueError(f"unknown answer rule {name!r}: choose one of {known}")
    if not options:
        return RULES[rule]
    return RULES[rule]._replace(name=name, extract=partial(_extract_default, **dict.fromkeys(options, True)))


def extract_answer(text: str, rule: str = "default") -> Decimal | None:
    r"""The number that a generated text gives as its answer, or None.

    "default": the whole text if it is one number; else the first number after the first "####"; else the last one of
    the last "\boxed{...}"; else (also where nothing follows the mark) the last one of the text, as ``find_values``
    reads them. "default+magnitudes" and "default+percent" are its options.
    "paper": the last match of the original pattern, through a float (so 1,234 is 234); the metric clips, not the parse.
    """
    return get_rule(rule).extract(text)


def _extract_default(text: str, **options: bool) -> Decimal | None:
    whole = parse_number(text)
    if whole is not None:
        return whole
    # The first mark: a model that continues with a question of its own answers that one, too.
    if marked := find_values(text.partition(ANSWER_MARK)[2].strip(), **options):
        return marked[0]
    numbers = find_values((last_boxed(text) or text).strip(), **options)
    return numbers[-1] if numbers else None


def compare_exactly(predictions: Sequence[Decimal | None], answers: Sequence[Decimal]) -> Pairs:
    """Compare in decimal arithmetic; only results are float64. None is an unparsable prediction."""
    correct, within = np.zeros((2, len(answers)), dtype=bool)
    error, relative = np.full((2, len(answers)), np.nan)
    for index, (prediction, answer) in enumerate(zip(predictions, answers, strict=True)):
        if prediction is None:
            continue
        distance = WIDE.abs(WIDE.subtract(prediction, answer))
        hundredfold = WIDE.multiply(distance, _HUNDRED)
        correct[index] = prediction == answer
        within[index] = hundredfold <= answer.copy_abs()
        error[index] = float(distance)
        if answer:
            relative[index] = float(WIDE.divide(hundredfold, answer.copy_abs()))
    valid, nonzero = np.array([value is not None for value in predictions], dtype=bool), np.array(answers, dtype=bool)
    exact, truth = (np.array(row, dtype=object) for row in (predictions, answers))
    log_error, log_answer = _log_gaps(predictions, answers), _log_gaps(answers, [*answers[:1]] * len(answers))
    return Pairs(valid, correct, within, nonzero, exact, truth, log_error, log_answer, error, relative)


def compare_as_paper(predictions: Sequence[Decimal | None], answers: Sequence[Decimal]) -> Pairs:
    """Compare in float64 as the original code: predictions clipped to ±1e10, answers not, equality by np.isclose.

    The asymmetric clipping makes every correct prediction above 1e10 wrong; the paper's numbers were computed with it.
    """
    answer = _floats(answers)
    with np.errstate(all="ignore"):
        prediction = np.clip(_floats(predictions), -PAPER_CLIP, PAPER_CLIP)
        error, nonzero = np.abs(prediction - answer), answer != 0
        correct = np.isclose(prediction, answer)  # original code: with its defaults
        within, relative = 100 * error <= np.abs(answer), np.where(nonzero, 100 * error / np.abs(answer), np.nan)
        logs = signed_log(prediction) - signed_log(answer), signed_log(answer)
    return Pairs(~np.isnan(prediction), correct, within, nonzero, prediction, answer, *logs, error, relative)


def _floats(values: Sequence[Decimal | None]) -> NDArray:
    return np.array([math.nan if value is None else float(value) for value in values], dtype=np.float64)


def _log(values: Sequence[Decimal | None]) -> NDArray:
    """Signed log of values; of those beyond float64, from their decimals."""
    floats = _floats(values)
    logs = signed_log(floats)
    for index in map(int, np.flatnonzero(np.isinf(floats))):
        decimal: Any = values[index]  # never None: an unparsable prediction is NaN
        logs[index] = np.copysign(float(WIDE.log10(decimal.copy_abs())), floats[index])
    return logs


def _log_gaps(values: Sequence[Decimal | None], others: Sequence[Decimal]) -> NDArray:
    """Differences of the signed logs; of values near each other, whose logs may be equal in float64, by log1p."""
    gaps = _log(values) - _log(others)
    for index in map(int, np.flatnonzero(np.abs(gaps) < _NEAR)):
        value, other = cast(Decimal, values[index]), others[index]
        if value.is_signed() == other.is_signed():
            ratio = WIDE.divide(WIDE.subtract(value, other), WIDE.add(other.copy_abs(), 1))
            gaps[index] = math.log1p(-ratio if other.is_signed() else ratio) / math.log(10) * (-1) ** other.is_signed()
    return gaps


RULES: dict[str, AnswerRule] = {
    "default": AnswerRule("default", _extract_default, compare_exactly, math.nan),
    "paper": AnswerRule("paper", last_number_paper, compare_as_paper, 0.0),
}
