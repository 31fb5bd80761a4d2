"""Which records stand beside each other in a figure."""

import pytest

from ntl.config import UserError
from ntl.results.figures.runs import runs_by_loss


def test_only_runs_that_differ_in_loss_and_seed_alone(tiny_record) -> None:
    ours = [tiny_record("ntl_was", 2), tiny_record("ntl_was", 1), tiny_record("ce", 7)]
    others = [
        tiny_record("ntl_was", 3, weight=2.0),
        tiny_record("ntl_was", 4, scale="small"),
        tiny_record("ntl_was", 5, model="t5_tiny"),
        tiny_record("ntl_was", 6, "multiplication"),
        tiny_record("ntl_was", 7, tokenizer="default"),
        tiny_record("ntl_was", 8, overrides=["loss=ntl_was", "trainer.max_steps=7"]),
        tiny_record("gce", 1),
    ]
    found = runs_by_loss(ours + others, "noisy_numbers")
    assert list(found) == ["ce", "ntl_was"]
    assert {loss: list(have) for loss, have in found.items()} == {"ce": [7], "ntl_was": [1, 2]}
    assert found["ntl_was"][2] is ours[0]
    assert runs_by_loss(ours, "mathematics") == {}


def test_two_records_of_one_seed_are_an_error(tiny_record) -> None:
    with pytest.raises(UserError, match=r"noisy_numbers, ce.*two records"):
        runs_by_loss([tiny_record("ce", 1), tiny_record("ce", 1)], "noisy_numbers")
