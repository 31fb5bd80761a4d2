"""Construction of the loss terms from the loss config."""

from dataclasses import replace

from ntl.config.loss import FunctionConfig, LossConfig
from ntl.config.targets import locate
from ntl.losses.kinds import Loss, Terms
from ntl.numbers import NumberVocabulary


def terms_of(config: LossConfig, number_vocab: NumberVocabulary | None) -> Terms:
    """Build the loss terms: the functions that the config names, with their options.

    A cost matrix, if the config has one, is built from the values of the number tokens. Without a number term the
    weight is 0. UserError: a function does not exist.
    """

    def loss(function: FunctionConfig, **bound: object) -> Loss:
        return Loss(locate(function._target_), {**function.options, **bound})

    terms = Terms(loss(config.base), weight=0.0, implementation=config.implementation.name)
    if config.number is None:
        return terms
    bound = {}
    if config.cost is not None and number_vocab is not None:
        bound["cost"] = loss(config.cost)(number_vocab.token_values)
    return replace(terms, numbers=(loss(config.number, **bound),), weight=config.weight)
