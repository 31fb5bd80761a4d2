"""From a loss config to functions: which ones, with which options, on which cost."""

import math

import pytest
import torch

from ntl import losses
from ntl.config import UserError, compose
from ntl.config.folders import choices
from ntl.losses.kinds import Terms
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.terms import number_term, terms_of

# Ids 0..3 are text, 4..7 the numbers 0, 1, 2 and 5.
VOCAB = NumberVocabulary.from_values(torch.tensor([math.nan] * 4 + [0.0, 1.0, 2.0, 5.0]))
LOGITS = torch.arange(24, dtype=torch.float64).reshape(3, 8).cos()
LABELS = torch.tensor([5, 2, 7])


def _terms(*overrides: str) -> Terms:
    return terms_of(compose(overrides).loss, VOCAB)


def _value(loss) -> float:
    return float(loss(LOGITS, LABELS, VOCAB, reduction="sum"))


def test_the_squared_error_of_a_number_head() -> None:
    terms = _terms("model=xval_tiny")
    assert number_term(terms)(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 5.0]), reduction="sum") == 5
    assert (terms.base.function, terms.weight) == (losses.cross_entropy, 1.0)
    with pytest.raises(UserError, match="needs a function such as squared_error"):
        number_term(_terms("loss=ce"))


@pytest.mark.parametrize("name", [name for name in choices("loss") if name != "mse"])
def test_every_choice_gives_finite_terms(name: str) -> None:
    terms = _terms(f"loss={name}")
    assert math.isfinite(_value(terms.base))
    assert not terms.numbers or _value(terms.number) > 0
    assert (not terms.numbers) == (name in ("ce", "gce"))
    assert terms.weight == (0.3 if terms.numbers else 0)  # what is logged beside CE alone is no part of the loss


def test_options_reach_their_function() -> None:
    huber = _terms("loss=ntl_huber", "loss.number.options.delta=0.25").number
    expected = losses.ntl_huber(LOGITS, LABELS, VOCAB, reduction="sum", delta=0.25)
    assert _value(huber) == float(expected) != float(losses.ntl_huber(LOGITS, LABELS, VOCAB, reduction="sum"))
    both = _terms("loss=gce_ntl_was", "loss.base.options.sigma=2.5")
    for function, loss in ((both.base, losses.gaussian_cross_entropy), (both.number, losses.ntl_was_cdf)):
        assert _value(function) == float(loss(LOGITS, LABELS, VOCAB, reduction="sum", sigma=2.5))
