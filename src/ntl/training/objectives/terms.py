"""Construction of the loss terms from the loss config."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ntl.config.loss import FunctionConfig, LossConfig
from ntl.config.targets import locate
from ntl.losses.kinds import Loss, Terms
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError


def terms_of(config: LossConfig, number_vocab: NumberVocabulary | None) -> Terms:
    """Build the loss terms: the functions that the config names, with their options.

    A cost matrix, if the config has one, is built from the values of the number tokens. Without a number term the
    weight is 0.

    Raises:
        UserError: A function does not exist.
    """
    terms = Terms(_loss(config.base), weight=0.0, implementation=config.implementation.name)
    if config.number is None:
        return terms
    cost: dict[str, Any] = {}
    if config.cost is not None and number_vocab is not None:
        cost = {"cost": _loss(config.cost)(number_vocab.token_values)}
    return replace(terms, numbers=(_loss(config.number, cost),), weight=config.weight)


def number_term(terms: Terms) -> Loss:
    """Return the number term, for an objective that requires one.

    Raises:
        UserError: The loss has no number term.
    """
    if not terms.numbers:
        raise UserError("loss.number: this objective trains a number head and needs a function such as squared_error.")
    return terms.numbers[0]


def _loss(config: FunctionConfig, bound: Mapping[str, Any] | None = None) -> Loss:
    return Loss(locate(config._target_), {**config.options, **(bound or {})})
