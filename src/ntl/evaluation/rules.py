"""The rules that turn texts into numbers and compare these with answers, each with a name.

Whoever changes a rule raises its version in ``ntl.evaluation.metrics``.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntl.numbers import find_numbers, last_number_paper, parse_number, signed_log

ANSWER_MARK = "####"  # GSM8K: the final answer stands after it

PAPER_CLIP = 1e10  # original code: predictions are clipped to ±1e10, answers are not
PAPER_RTOL, PAPER_ATOL = 1e-5, 1e-8  # original code: np.isclose with its defaults

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

# An operation of `decimal` is exact before it is rounded to the precision of the context, so 50 digits are enough for
# the difference of numbers of any length. The number grammar keeps exponents well within the context's range.
_WIDE = Context(prec=50)
_HUNDRED = Decimal(100)
_EXACT = Context(prec=1000, traps=[Inexact])  # enough for every fraction of two `_NUMERAL`s that ends


@dataclass(frozen=True, slots=True)
class Pairs:
    """N compared examples. All arrays are (N,); every float array is NaN where `valid` is False, except `answer`.

    valid: the prediction was parsed. correct, within: bool, equal, and within 1% of the answer (False where invalid).
    prediction, answer: values; log_prediction, log_answer: signed log10. error: |prediction - answer|.
    relative: 100 |prediction - answer| / |answer| in percent, NaN also where the answer is 0.
    nonzero: the answer is not 0. A value beyond float64 is ±inf, its signed log stays finite.
    """

    correct: NDArray
    within: NDArray
    nonzero: NDArray
    prediction: NDArray
    answer: NDArray
    log_prediction: NDArray
    log_answer: NDArray
    error: NDArray
    relative: NDArray

    @property
    def valid(self) -> NDArray:
        return ~np.isnan(self.prediction)

    def take(self, chosen: NDArray | Sequence[int]) -> "Pairs":
        """The examples of a boolean mask (N,) or of a list of positions."""
        return Pairs(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """How a text becomes a number (None where it holds no answer), and how numbers are compared.

    short_correlation: what Pearson and Spearman are with fewer than two valid pairs.
    """

    name: str
    extract: Callable[[str], Decimal | None]
    compare: Callable[[Sequence[Decimal | None], Sequence[Decimal]], Pairs]
    short_correlation: float


def get_rule(name: str) -> AnswerRule:
    """The rule of that name. ValueError names the rules that exist."""
    if name not in RULES:
        raise ValueError(f"unknown answer rule {name!r}: choose one of {', '.join(RULES)}")
    return RULES[name]


def extract_answer(text: str, rule: str = "default") -> Decimal | None:
    """The number that a generated text gives as its answer, or None.

    "default": the whole text if it is one number; else the first number after the first "####"; else (also where
    nothing follows the mark) the last number in the text; all read as by `read_numbers`.
    "paper": the last match of the original pattern, through a float (so 1,234 is 234); the metric clips, not the parse.
    """
    return get_rule(rule).extract(text)


def _extract_default(text: str) -> Decimal | None:
    whole = parse_number(text)
    if whole is not None:
        return whole
    # The first mark: a model that continues with a question of its own answers that one, too.
    tail = text.partition(ANSWER_MARK)[2]
    # A marked text begins with its number, where 1 234 is one number.
    marked = read_numbers(_SPACED.sub(lambda match: match[1] + match[2].replace(" ", ""), tail))
    numbers = marked[:1] or read_numbers(text)
    return numbers[-1] if numbers else None


def _extract_paper(text: str) -> Decimal | None:
    value = last_number_paper(text)
    return None if value is None else Decimal(repr(float(value)))


def read_numbers(text: str) -> list[Decimal | None]:
    """The numbers of a text in order, as a person reads them; None for a numeral whose value is not a finite decimal.

    Beyond the plain grammar of `ntl.numbers`, which would find only a part of each::

        1/2, 3⁄4, ½, 2 1/2      a fraction, by its value
        10², 2³⁴                a power, which is None
        1 234                   1234 where a no-break or thin space separates the groups
        -$5, −€5                -5
    """
    if not _SPECIAL.search(text):
        return [*find_numbers(text)]
    text = _GROUPS.sub(lambda match: re.sub(r"\s", "", match[0]), text)
    text = _SIGNED_AMOUNT.sub(r"\1", text)
    values: list[Decimal | None] = []
    rest = 0
    for match in _COMPOUND.finditer(text):
        values += [*find_numbers(_after(text, rest, match.start())), *_values(match)]
        rest = match.end()
    return [*values, *find_numbers(_after(text, rest, len(text)))]


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
    try:
        return _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
    except Inexact:
        return None


def compare_exactly(predictions: Sequence[Decimal | None], answers: Sequence[Decimal]) -> Pairs:
    """Compare in decimal arithmetic; only results are float64. None is an unparsable prediction."""
    correct, within = np.zeros((2, len(answers)), dtype=bool)
    error, relative = np.full((2, len(answers)), np.nan)
    for index, (prediction, answer) in enumerate(zip(predictions, answers, strict=True)):
        if prediction is None:
            continue
        distance = _WIDE.abs(_WIDE.subtract(prediction, answer))
        hundredfold = _WIDE.multiply(distance, _HUNDRED)
        correct[index] = prediction == answer
        within[index] = hundredfold <= answer.copy_abs()
        error[index] = float(distance)
        if answer:
            relative[index] = float(_WIDE.divide(hundredfold, answer.copy_abs()))
    values, truths, nonzero = _floats(predictions), _floats(answers), np.array(answers, dtype=bool)
    logs = _log(values, predictions), _log(truths, answers)
    return Pairs(correct, within, nonzero, values, truths, *logs, error, relative)


def compare_as_paper(predictions: Sequence[Decimal | None], answers: Sequence[Decimal]) -> Pairs:
    """Compare in float64 as the original code: predictions clipped to ±1e10, answers not, equality by np.isclose.

    The asymmetric clipping makes every correct prediction above 1e10 wrong; the paper's numbers were computed with it.
    """
    answer = _floats(answers)
    with np.errstate(all="ignore"):
        prediction = np.clip(_floats(predictions), -PAPER_CLIP, PAPER_CLIP)
        error, nonzero = np.abs(prediction - answer), answer != 0
        correct = np.isclose(prediction, answer, rtol=PAPER_RTOL, atol=PAPER_ATOL)
        within, relative = 100 * error <= np.abs(answer), np.where(nonzero, 100 * error / np.abs(answer), np.nan)
        logs = signed_log(prediction), signed_log(answer)
    return Pairs(correct, within, nonzero, prediction, answer, *logs, error, relative)


def _floats(values: Sequence[Decimal | None]) -> NDArray:
    return np.array([math.nan if value is None else float(value) for value in values], dtype=np.float64)


def _log(values: NDArray, exact: Sequence[Decimal | None]) -> NDArray:
    """Signed log of float64 values; of those beyond float64, from their decimals."""
    logs = signed_log(values)
    for index in map(int, np.flatnonzero(np.isinf(values))):
        decimal: Any = exact[index]  # never None: an unparsable prediction is NaN
        logs[index] = np.copysign(float(_WIDE.log10(decimal.copy_abs())), values[index])
    return logs


RULES: dict[str, AnswerRule] = {
    "default": AnswerRule("default", _extract_default, compare_exactly, math.nan),
    "paper": AnswerRule("paper", _extract_paper, compare_as_paper, 0.0),
}
