"""The bootstrap over test examples on records made by hand."""

from dataclasses import replace
from typing import Any

import pytest

from ntl.config import UserError
from ntl.results import RunRecord, bootstrap_difference, pack_bits, pack_errors
from ntl.results.statistics import example_difference


def record(correct: list[bool], errors: list[float | None]) -> RunRecord:
    return RunRecord(
        id="r",
        overrides=[],
        config={},
        seed=1,
        metrics={"test/count": len(correct)},
        correct={"test": pack_bits(correct)},
        errors={"test": pack_errors(errors)},
        ids_sha256={"test": "0"},
    )


CE = record([True, False] * 10, [2.0] * 20)
WAS = record([True] * 20, [1.0, 0.0] * 10)


def test_accuracy_is_that_of_the_bits() -> None:
    expected = bootstrap_difference([1.0, 0.0] * 10, [1.0] * 20)
    assert example_difference("test/accuracy", [(CE, WAS)]) == pytest.approx(expected)


def test_an_unanswered_example_is_left_out_on_both_sides() -> None:
    unanswered = record([True] * 20, [None, 0.0] * 10)
    # Only the examples remain whose error falls from 2 to 0.
    assert example_difference("test/mae", [(CE, unanswered)]) == pytest.approx((-2, -2, -2))
    assert example_difference("test/mae", [(CE, record([True] * 20, [None] * 20))]) is None


def test_an_example_has_its_mean_over_the_seeds() -> None:
    # By seed every example differs by -1 or -2 and by -1 or 0; on average by -1 or -1 in all of them.
    second = record([True] * 20, [1.0, 2.0] * 10)
    assert example_difference("test/mae", [(CE, WAS), (CE, second)]) == pytest.approx((-1, -1, -1))


@pytest.mark.parametrize(
    ("metric", "changes"),
    [
        ("test/rmse", {}),
        ("validation/accuracy", {}),
        ("test/accuracy", {"ids_sha256": {"test": "1"}}),
        ("test/accuracy", {"correct": {}}),
        ("test/accuracy", {"metrics": {}}),
        ("test/mae", {"errors": {}}),
    ],
)
def test_what_cannot_be_paired_has_none(metric: str, changes: dict[str, Any]) -> None:
    assert example_difference(metric, [(CE, replace(WAS, **changes))]) is None


def test_records_that_claim_the_same_examples_have_as_many_answers() -> None:
    with pytest.raises(UserError, match=r"^a and r: the same test examples of test, but not as many answers: restore"):
        example_difference("test/accuracy", [(CE, replace(record([True] * 19, [1.0] * 19), id="a"))])
