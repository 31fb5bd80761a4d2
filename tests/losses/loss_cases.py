"""The vocabularies and the list of losses that the tests in this folder share."""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from ntl import losses
from ntl.numbers import NumberVocabulary

TEXT = math.nan
# ids 0 pad, 1 'a', 2 'b', 3..12 the digits 0..9: the vocabulary of the reference values.
DIGITS = NumberVocabulary.from_values([TEXT] * 3 + list(range(10)))
# Unsorted, irregular gaps, equal values, a number at id 0, text in between and at the end.
IRREGULAR = NumberVocabulary.from_values([5.0, TEXT, 0.0, 100.0, TEXT, 7.0, 5.0, -2.5, TEXT])

Loss = Callable[..., Tensor]


def ntl_was_squashed(logits: Tensor, labels: Tensor, number_vocab: NumberVocabulary, **options: object) -> Tensor:
    cost = losses.squashed_cost(number_vocab.token_values, 3.0)
    return losses.ntl_was(logits, labels, number_vocab, cost=cost, **options)  # type: ignore[arg-type]


NUMBER_LOSSES: dict[str, Loss] = {
    "digit_cross_entropy": losses.digit_cross_entropy,
    "ntl_mse": losses.ntl_mse,
    "ntl_mae": losses.ntl_mae,
    "ntl_huber": losses.ntl_huber,
    "ntl_huber_2": functools.partial(losses.ntl_huber, delta=2.0),
    "ntl_was": losses.ntl_was,
    "ntl_was_squashed": ntl_was_squashed,
    "ntl_was_cdf": losses.ntl_was_cdf,
    "ntl_was_cdf_sigma": functools.partial(losses.ntl_was_cdf, sigma=1.5),
    "ntl_crps": losses.ntl_crps,
}
TOKEN_LOSSES: dict[str, Loss] = {
    "cross_entropy": losses.cross_entropy,
    "gaussian_cross_entropy": losses.gaussian_cross_entropy,
    "gaussian_cross_entropy_2": functools.partial(losses.gaussian_cross_entropy, sigma=2.0),
}
LOSSES = NUMBER_LOSSES | TOKEN_LOSSES


def point_logits(distribution: Tensor, number_vocab: NumberVocabulary) -> Tensor:
    """Return logits (V,) whose softmax over the number tokens is `distribution` (K,)."""
    logits = torch.zeros(number_vocab.values.numel(), dtype=distribution.dtype)
    return logits.index_put((number_vocab.token_ids,), distribution.log())
