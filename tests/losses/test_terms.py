"""Losses by name, and their properties that the fused implementations use."""

import torch
from loss_cases import DIGITS

from ntl import losses
from ntl.losses.fused.terms import Terms
from ntl.losses.kinds import kinds


def test_every_number_loss_has_a_kind() -> None:
    named = {name for name in losses.__all__ if name.startswith("ntl_")} | {"digit_cross_entropy"}
    of_numbers = [kind for kind in kinds().values() if not kind.is_base]
    assert {kind.function.__name__ for kind in of_numbers} == named
    assert all((kind.rows is None) != (kind.excess is None) for kind in of_numbers)
    assert {kind.name for kind in kinds().values() if "cost" in kind.options} == {"was", "was_vocab"}
    assert {kind.name for kind in kinds().values() if not kind.distance} == {"ce", "gce", "digit_ce", "number_level"}


def test_what_is_counted() -> None:
    labels = torch.tensor([[5, 6, 1, 7]])
    assert Terms.of("was", 1.0, {}).counted(labels, DIGITS, -100).tolist() == [[True, True, False, True]]
    assert Terms.of("number_level", 1.0, {}).counted(labels, DIGITS, -100).tolist() == [[False, True, False, True]]
