"""Losses by name, and their properties that the fused implementations use."""

import pytest
from loss_cases import DIGITS

from ntl import losses
from ntl.losses.categorical import gaussian_target_rows
from ntl.losses.fused.terms import Loss, Terms
from ntl.losses.kinds import COMMON, kinds


def test_every_number_loss_has_a_kind() -> None:
    named = {name for name in losses.__all__ if name.startswith("ntl_")} | {"digit_cross_entropy"}
    of_numbers = [kind for kind in kinds().values() if not kind.is_base]
    assert {kind.function.__name__ for kind in of_numbers} == named
    assert all((kind.rows is None) != (kind.excess is None) for kind in of_numbers)
    assert {kind.name for kind in kinds().values() if kind.takes_cost} == {"was", "was_vocab"}
    assert {kind.name for kind in kinds().values() if not kind.distance} == {"ce", "gce", "digit_ce", "number_level"}


def test_kinds_are_joined() -> None:
    terms = Terms.of("gce+was_cdf+crps", 0.5, {"sigma": 2.0})
    assert terms.base.function is losses.gaussian_cross_entropy
    assert terms.base.options == {"sigma": 2.0}
    assert [loss.function for loss in terms.numbers] == [losses.ntl_was_cdf, losses.ntl_crps]
    assert [loss.options for loss in terms.numbers] == [{"sigma": 2.0}, {}]
    assert (len(terms.parts("rows")), terms.parts("excess"), terms.weight) == (2, [], 0.5)
    assert terms.base.kind is not None
    assert terms.base.kind.target is gaussian_target_rows
    assert Terms.of("ce", 1.0, {}).numbers == ()


def test_a_loss_of_somebody_elses_is_not_known() -> None:
    assert Terms.of("was", 1.0, {}).knows
    own = Loss(lambda *args, **options: args[0].sum())
    assert not Terms(numbers=(own,)).knows
    assert not Terms(base=own).knows
    assert own.kind is None


@pytest.mark.parametrize("name", kinds())
def test_options_are_those_of_the_function(name: str) -> None:
    kind = kinds()[name]
    code = kind.function.__code__
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    assert set(kind.options) == set(named) - COMMON


def test_what_is_counted() -> None:
    import torch

    labels = torch.tensor([[5, 6, 1, 7]])
    assert Terms.of("was", 1.0, {}).counted(labels, DIGITS, -100).tolist() == [[True, True, False, True]]
    assert Terms.of("number_level", 1.0, {}).counted(labels, DIGITS, -100).tolist() == [[False, True, False, True]]
