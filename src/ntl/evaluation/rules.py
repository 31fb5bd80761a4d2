"""The rules that turn generated text into a score, each with a name and a version.

Whoever changes a rule must raise its version: records with different versions are not comparable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ntl.evaluation.pairs import Pairs, compare_as_paper, compare_exactly
from ntl.evaluation.reading import read_marked, read_numbers
from ntl.numbers import last_number_paper, parse_number

ANSWER_MARK = "####"  # GSM8K: the final answer stands after it


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """How a text becomes a number, and how numbers are compared.

    extract: text -> Decimal, or None where the text holds no answer. compare: parsed predictions and answers -> Pairs.
    short_correlation: what Pearson and Spearman are with fewer than two valid pairs.
    """

    name: str
    version: int
    description: str
    extract: Callable[[str], Decimal | None]
    compare: Callable[[Sequence[Decimal | None], Sequence[Decimal]], Pairs]
    short_correlation: float


def _extract_default(text: str) -> Decimal | None:
    whole = parse_number(text)
    if whole is not None:
        return whole
    # The first mark: a model that continues with a question of its own answers that one, too.
    _, mark, tail = text.partition(ANSWER_MARK)
    marked = read_marked(tail) if mark else []
    if marked:
        return marked[0]
    numbers = read_numbers(text)
    return numbers[-1] if numbers else None


def _extract_paper(text: str) -> Decimal | None:
    value = last_number_paper(text)
    return None if value is None else Decimal(repr(float(value)))


RULES: dict[str, AnswerRule] = {
    rule.name: rule
    for rule in (
        AnswerRule(
            name="default",
            version=3,  # 2 took the last ####: another score only where a text has several
            description="the whole text if it is a number, else the number after the first ####, else the last number; "
            "exact on decimals; fractions by their value, a fraction without a finite decimal or a power is unparsable",
            extract=_extract_default,
            compare=compare_exactly,
            short_correlation=float("nan"),
        ),
        AnswerRule(
            name="paper",
            version=1,
            description="the original code: last match of its number pattern as a float, predictions clipped to ±1e10, "
            "equality by np.isclose",
            extract=_extract_paper,
            compare=compare_as_paper,
            short_correlation=0.0,
        ),
    )
}


def get_rule(name: str) -> AnswerRule:
    """The rule of that name. ValueError names the rules that exist."""
    try:
        return RULES[name]
    except KeyError:
        raise ValueError(f"unknown answer rule {name!r}: choose one of {', '.join(RULES)}") from None


def extract_answer(text: str, rule: str = "default") -> Decimal | None:
    """The number that a generated text gives as its answer, or None.

    "default": the whole text if it is one number; else the first number after the first "####"; else (also where
    nothing follows the mark) the last number in the text; all read as a person reads them (`evaluation.reading`).
    "paper": the last match of the original pattern, through a float (so 1,234 is 234); clipping belongs to the metric,
    not to the parse.
    """
    return get_rule(rule).extract(text)
