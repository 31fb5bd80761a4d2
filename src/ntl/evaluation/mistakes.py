"""The wrong answers of a predictions.jsonl: how bad each is, and of what kind."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ntl.evaluation.predictions import read_predictions
from ntl.evaluation.rules import RULES
from ntl.evaluation.textual import exact_matches
from ntl.results.spec import SHORTCUT
from ntl.system.errors import needs

# In the order in which they are tried: a mistake is of the first kind that fits.
NUMBER_KINDS = {
    "no number": "the answer has none",
    SHORTCUT: "the answer of a known wrong rule",
    "sign": "negative in place of positive, or the other way round",
    "decimal place": "the right digits, times a power of ten",
    "length": "more or fewer digits before the point",
    "units digit": "all other digits are right",
    "tens digit": "all other digits are right",
    "one digit": "another one; all other digits are right",
    "digits": "several digits are wrong",
}
TEXT_KINDS = {
    "empty": "there is no answer",
    "case or space": "otherwise equal",
    "more": "the right text and something else",
    "part": "a part of the right text",
    "other": "another text",
}


@dataclass(frozen=True)
class Mistake:
    """A wrong answer. ``error``: of a number |prediction - answer|, NaN without one; of a text 1 - ROUGE-1."""

    row: Mapping[str, Any]
    error: float
    kind: str


def number_kind(prediction: Decimal | None, answer: Decimal, shortcut: Decimal | None = None) -> str:
    """The first of ``NUMBER_KINDS`` that a wrong number fits."""
    if prediction is None:
        return "no number"
    if prediction == shortcut:
        return SHORTCUT
    if prediction * answer < 0:
        return "sign"
    written, right = f"{abs(prediction):f}", f"{abs(answer):f}"
    if answer and written.replace(".", "").strip("0") == right.replace(".", "").strip("0"):
        return "decimal place"
    (whole, _, fraction), (right_whole, _, right_fraction) = written.partition("."), right.partition(".")
    if len(whole.lstrip("0")) != len(right_whole.lstrip("0")):
        return "length"
    places = max(len(fraction), len(right_fraction))
    digits = whole.zfill(len(right_whole)) + fraction.ljust(places, "0")
    expected = right_whole.zfill(len(whole)) + right_fraction.ljust(places, "0")
    wrong = [at for at, (a, b) in enumerate(zip(digits, expected, strict=True)) if a != b]
    if len(wrong) > 1:
        return "digits"
    return {1: "units digit", 2: "tens digit"}.get(len(digits) - places - wrong[0], "one digit")


def text_kind(prediction: str, answer: str) -> str:
    """The first of ``TEXT_KINDS`` that a wrong text fits."""
    written, right = (" ".join(text.casefold().split()) for text in (prediction, answer))
    if not written:
        return "empty"
    if written == right:
        return "case or space"
    if right and right in written:
        return "more"
    return "part" if written in right else "other"


def mistakes(path: Path) -> tuple[dict[str, int], list[Mistake], bool]:
    """The number of answers of each split, the wrong ones, worst first, and whether answers are numbers.

    Numbers are read and compared by the default rule. Answers without a number stand last. UserError as of
    ``read_predictions``.
    """
    header, rows = read_predictions(path)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["split"]] = counts.get(row["split"], 0) + 1
    is_number = header["metrics"] == "number"
    found = list(_numbers(rows) if is_number else _texts(rows))
    return counts, sorted(found, key=lambda each: math.inf if math.isnan(each.error) else -each.error), is_number


def _numbers(rows: list[dict[str, Any]]) -> Iterable[Mistake]:
    rule = RULES["default"]
    for row in rows:
        answer, prediction = rule.extract(row["answer"]), rule.extract(row["prediction"])
        if answer is None or prediction == answer:
            continue
        shortcut = rule.extract(row["shortcut"]) if "shortcut" in row else None
        error = float(rule.compare([prediction], [answer]).error[0])
        yield Mistake(row, error, number_kind(prediction, answer, shortcut))


def _texts(rows: list[dict[str, Any]]) -> Iterable[Mistake]:
    with needs("train"):
        from rouge_score.rouge_scorer import RougeScorer
    scorer = RougeScorer(["rouge1"], use_stemmer=True)
    for row in rows:
        answer, prediction = row["answer"], row["prediction"]
        if not exact_matches([prediction], [answer])[0]:
            error = 1.0 - scorer.score(answer, prediction)["rouge1"].fmeasure
            yield Mistake(row, error, text_kind(prediction, answer))
