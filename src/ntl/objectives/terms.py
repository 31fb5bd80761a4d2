"""Construction of the loss terms from the loss config."""

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

from ntl.config.loss import FunctionConfig, LossConfig
from ntl.config.targets import locate
from ntl.losses.kinds import Loss, Terms
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError


def terms_of(
    config: LossConfig, number_vocab: NumberVocabulary | None, known: Mapping[str, Any] | None = None
) -> Terms:
    """Build the loss terms: the functions that the config names, with their options.

    A cost matrix, if the config has one, is built from the values of the number tokens. Without a number term the
    weight is 0. ``known`` are values of options without a default that the config cannot name, such as the token of
    the decimal point. UserError: a function does not exist, or lacks such an option.
    """

    def loss(function: FunctionConfig, **bound: object) -> Loss:
        found = locate(function._target_)
        own = [each for each in signature(found).parameters.values() if each.kind == each.KEYWORD_ONLY]
        required = {each.name for each in own if each.default is each.empty}
        options = {name: value for name, value in (known or {}).items() if name in required} | function.options | bound
        if lacking := sorted(required - {*options}):
            raise UserError(f"loss={config.name}: {function._target_} needs options.{lacking[0]}; give it.")
        return Loss(found, options)

    terms = Terms(loss(config.base), weight=0.0, implementation=config.implementation.name)
    if config.number is None:
        return terms
    bound = {}
    if config.cost is not None and number_vocab is not None:
        bound["cost"] = loss(config.cost)(number_vocab.token_values)
    return replace(terms, numbers=(loss(config.number, **bound),), weight=config.weight)
