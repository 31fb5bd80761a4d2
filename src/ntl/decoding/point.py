"""A single number from a distribution of numbers: its mean, best under squared error, or its median, under absolute.

A language model gives a little probability to numbers of many digits, whose values would dominate the mean: a
probability of 0.001 for nine digits moves it by a million. Mean and standard deviation are therefore trimmed: a share
``trim`` of the probability is left out at either end; 0 gives the plain ones.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ntl.config.decoding import TreeConfig
from ntl.decoding.batches import Answer, Example, Read
from ntl.decoding.distribution import NumberDistribution
from ntl.decoding.number_head import write_value
from ntl.decoding.tree import NumberTokens, read_numbers
from ntl.models.interface import end_ids

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# In ``Answer.about``: all of the distribution.
DISTRIBUTION = "distribution"


def expectation(config: TreeConfig, **given: Any) -> Read:
    """The mean of the model's distribution of numbers, to ``config.decimals`` decimals."""
    return _read_points(config, lambda numbers: write_value(numbers.moments(config.trim)[0], config.decimals), **given)


def median(config: TreeConfig, **given: Any) -> Read:
    """The median of the model's distribution of numbers, the lower one of two, as the model would write it."""
    return _read_points(config, lambda numbers: numbers.texts[numbers.place(0.5)], **given)


def _read_points(
    config: TreeConfig,
    write: Callable[[NumberDistribution], str],
    *,
    model: Any,
    tokenizer: Any,
    max_new_tokens: int,
    also: Sequence[int] = (),
    interval: float = 0.0,
    searches: dict[Any, NumberDistribution] | None = None,
) -> Read:
    """``interval``: instead of quantiles, the mean and the central interval of this share of the probability.

    ``searches`` keeps what is found, for other decodings of the same model by the same search.
    """
    tokens = NumberTokens.from_tokenizer(tokenizer, end_ids(model, tokenizer, also), model.device)
    limits = {"num_beams": config.num_beams, "max_new_tokens": max_new_tokens, "tolerance": config.tolerance}

    def answer(numbers: NumberDistribution) -> Answer:
        if not numbers.represented:
            return Answer("", [], {"covered": 0.0, "represented": 0.0})
        mean, sd = numbers.moments(config.trim)
        about = {"covered": numbers.covered, "represented": numbers.represented, "sd": sd}
        if interval:
            return Answer(write(numbers), [], {"mean": mean, "interval": [*numbers.interval(interval)], **about})
        quantiles = {str(share): numbers.quantile(share) for share in QUANTILES}
        return Answer(write(numbers), [], {**about, "quantiles": quantiles, DISTRIBUTION: numbers})

    known = {} if searches is None else searches

    def read(batch: Sequence[Example], inputs: Mapping[str, torch.Tensor]) -> list[Answer]:
        keys = [(*limits.values(), *map(int, example["question_ids"])) for example in batch]
        if not all(key in known for key in keys):
            known.update(zip(keys, read_numbers(model, inputs, tokens, **limits), strict=True))
        return [answer(known[key]) for key in keys]

    return read
