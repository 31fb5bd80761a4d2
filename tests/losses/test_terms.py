"""Kinds by name, and what the fast implementations read from them."""

from functools import partial

import pytest
from loss_cases import DIGITS

from ntl import losses
from ntl.losses.terms import BASE_KINDS, NUMBER_KINDS, Terms


def test_every_number_loss_has_a_kind() -> None:
    named = {name for name in losses.__all__ if name.startswith("ntl_")} | {"digit_cross_entropy"}
    assert {kind.function.__name__ for kind in NUMBER_KINDS.values()} == named
    assert all((kind.rows is None) != (kind.excess is None) for kind in NUMBER_KINDS.values())


def test_kinds_are_joined() -> None:
    terms = Terms.of("gce+was_cdf+crps", 0.5, {"sigma": 2.0})
    assert isinstance(terms.base, partial)
    assert terms.base.keywords == {"sigma": 2.0}
    assert [getattr(loss, "func", loss) for loss in terms.numbers] == [losses.ntl_was_cdf, losses.ntl_crps]
    assert (len(terms.row_losses), terms.excesses, terms.weight) == (2, [], 0.5)
    assert terms.soft_target is not None
    assert Terms.of("ce", 1.0, {}).numbers == ()


def test_a_loss_of_somebody_elses_is_not_known() -> None:
    assert Terms.of("was", 1.0, {}).knows
    assert not Terms(numbers=(lambda *args, **options: args[0].sum(),)).knows
    assert not Terms(base=partial(lambda *args, **options: args[0].sum())).knows


@pytest.mark.parametrize("name", [*BASE_KINDS, *NUMBER_KINDS])
def test_options_are_those_of_the_function(name: str) -> None:
    kind = (NUMBER_KINDS | BASE_KINDS)[name]
    code = kind.function.__code__
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    assert set(kind.options) == set(named) - {"logits", "labels", "number_vocab", "ignore_index", "reduction"}


def test_what_is_counted() -> None:
    import torch

    labels = torch.tensor([[5, 6, 1, 7]])
    assert Terms.of("was", 1.0, {}).counted(labels, DIGITS, -100).tolist() == [[True, True, False, True]]
    assert Terms.of("number_level", 1.0, {}).counted(labels, DIGITS, -100).tolist() == [[False, True, False, True]]
