"""Kinds of mistakes, and which answers are the worst."""

import math
from decimal import Decimal
from pathlib import Path

import pytest

from ntl.evaluation import write_predictions
from ntl.evaluation.mistakes import NUMBER_KINDS, TEXT_KINDS, mistakes, number_kind, text_kind


@pytest.mark.parametrize(
    ("prediction", "answer", "kind"),
    [
        (None, "7", "no number"),
        ("-7", "7", "sign"),
        ("7.2", "72", "decimal place"),
        ("700", "7", "decimal place"),
        ("123", "12", "length"),
        ("0", "7", "length"),
        ("0", "0.5", "one digit"),
        ("45", "46", "units digit"),
        ("-45.5", "-46.5", "units digit"),
        ("36", "46", "tens digit"),
        ("146", "246", "one digit"),
        ("1.45", "1.4", "one digit"),
        ("54", "46", "digits"),
        ("-45", "-31", "digits"),
    ],
)
def test_a_number_is_of_the_first_kind_that_fits(prediction: str | None, answer: str, kind: str) -> None:
    assert kind in NUMBER_KINDS
    assert number_kind(None if prediction is None else Decimal(prediction), Decimal(answer)) == kind


def test_the_answer_of_a_wrong_rule() -> None:
    assert number_kind(Decimal(-7), Decimal(7), Decimal(-7)) == "shortcut"


@pytest.mark.parametrize(
    ("prediction", "kind"),
    [("", "empty"), ("the  CAT", "case or space"), ("the cat sat", "more"), ("cat", "part"), ("a dog", "other")],
)
def test_a_text_is_of_the_first_kind_that_fits(prediction: str, kind: str) -> None:
    assert kind in TEXT_KINDS
    assert text_kind(prediction, "The cat") == kind


def written(path: Path, metrics: str, pairs: list[tuple[str, str]]) -> Path:
    header = {"schema": 1, "dataset": "d", "metrics": metrics, "decoding": {}, "baselines": {}}
    rows = [{"split": "test", "id": str(n), "answer": a, "prediction": p} for n, (a, p) in enumerate(pairs)]
    write_predictions(path, header, rows)
    return path


def test_numbers_by_their_distance_and_those_without_one_last(tmp_path: Path) -> None:
    pairs = [("7", "7.0"), ("7", ""), ("7", "9"), ("1e400", "3"), ("-5", "5")]
    counts, found, is_number = mistakes(written(tmp_path / "p.jsonl", "number", pairs))
    assert (counts, is_number) == ({"test": 5}, True)
    assert [(each.row["id"], each.error) for each in found[:3]] == [("3", math.inf), ("4", 10.0), ("2", 2.0)]
    assert (found[3].row["id"], found[3].kind, len(found)) == ("1", "no number", 4)


def test_texts_by_rouge(tmp_path: Path) -> None:
    """Two of three words: precision 1 and recall 2/3, an F1 of 0.8."""
    pairs = [("a b c", "a b c"), ("a b c", "a b"), ("a b c", "x")]
    _, found, is_number = mistakes(written(tmp_path / "p.jsonl", "text", pairs))
    assert not is_number
    assert [each.row["id"] for each in found] == ["2", "1"]
    assert [each.error for each in found] == pytest.approx([1.0, 0.2])
