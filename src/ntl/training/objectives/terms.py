"""The loss config as two functions of logits and labels."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ntl.config import UserError
from ntl.config.loss import FunctionConfig, Implementation, LossConfig
from ntl.config.target import locate
from ntl.losses.terms import Terms
from ntl.numbers import NumberVocabulary

Loss = Callable[..., torch.Tensor]


def _function(config: FunctionConfig, **bound: object) -> Loss:
    return partial(locate(config._target_), **config.options, **bound)


@dataclass(frozen=True)
class LossTerms:
    """``base`` over all labelled tokens plus ``weight`` x ``number``, if there is one, over number-labelled tokens.

    ``weight`` is 0 without ``number``.
    """

    base: Loss
    number: Loss | None
    weight: float
    implementation: Implementation = Implementation.reference

    @classmethod
    def from_config(cls, config: LossConfig, number_vocab: NumberVocabulary | None) -> "LossTerms":
        """Bind the options; the cost matrix, where there is one, is built from the number tokens' values."""
        bound = {}
        if config.cost is not None and number_vocab is not None:
            bound = {"cost": _function(config.cost)(number_vocab.token_values)}
        number = None if config.number is None else _function(config.number, **bound)
        return cls(_function(config.base), number, config.weight if number else 0.0, config.implementation)

    @property
    def joint(self) -> Terms:
        """The same for the implementations that compute both at once."""
        return Terms(self.base, () if self.number is None else (self.number,), self.weight)

    @property
    def counted(self) -> Loss:
        """``counted(labels, number_vocab, ignore_index)`` (...) bool: what the mean of ``number`` is over."""
        return self.joint.counted

    def number_term(self) -> Loss:
        """``number``, for an objective that is nothing without it. UserError where the loss has none."""
        if self.number is None:
            raise UserError("loss.number: this objective trains a number head; name a function such as squared_error.")
        return self.number
