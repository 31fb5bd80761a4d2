"""A single number from a distribution of numbers: its mean, best under squared error, or its median, under absolute.

A language model gives a little probability to numbers of many digits, whose values would dominate the mean: a
probability of 0.001 for nine digits moves it by a million. Mean and standard deviation are therefore trimmed: a share
``trim`` of the probability is left out at either end; 0 gives the plain ones.

All statistics are conditional on the answer being one of the numbers that were found; ``covered`` is the probability
of that. Numbers above ``LARGEST`` are left out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ntl.config.decoding import TreeConfig
from ntl.decoding.batches import Answer, Example, Read
from ntl.decoding.number_head import write_value
from ntl.decoding.tree import NumberTokens, read_numbers
from ntl.models.interface import end_ids
from ntl.numbers import parse_number

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Leaves room in float64 for a mean and a standard deviation.
LARGEST = 1e300
# In ``Answer.about``: all of the distribution, as a ``Point``.
DISTRIBUTION = "distribution"
# How exact a sum of float32 probabilities is.
ROUNDING = 1e-6


class Point(NamedTuple):
    """Values in ascending order, their probabilities ``shares``, which sum to 1, and the text of each."""

    values: np.ndarray
    shares: np.ndarray
    texts: list[str]
    covered: float

    def moments(self, trim: float = 0.0) -> tuple[float, float]:
        """Mean and standard deviation without a share ``trim`` (below 1/2) at either end; there must be a value."""
        ends = np.cumsum(self.shares).clip(trim, 1 - trim)
        weights = np.diff(ends, prepend=trim)
        kept = weights > 0
        weights, values = weights[kept] / weights[kept].sum(), self.values[kept]
        # Squares of values near float64's end would overflow.
        scale = float(np.abs(values).max()) or 1.0
        mean = np.dot(weights, values / scale)
        return float(mean) * scale, math.sqrt(np.dot(weights, (values / scale - mean) ** 2)) * scale

    def quantile(self, share: float) -> int:
        """The index of the least value v for which P(number <= v) is at least ``share``."""
        return int(np.searchsorted(np.cumsum(self.shares), share - ROUNDING).clip(max=len(self.values) - 1))


@lru_cache(maxsize=1 << 16)
def _value(text: str) -> float | None:
    """The number that a text writes, which other examples write, too; None for none, or for one above ``LARGEST``."""
    parsed = parse_number(text)
    return float(parsed) if parsed is not None and abs(float(parsed)) <= LARGEST else None


def point(numbers: Mapping[str, float]) -> Point:
    """From text -> log probability; texts of the same value are added up and written as the most probable of them."""
    written: dict[float, dict[str, float]] = {}
    for text, log_probability in numbers.items():
        if (value := _value(text)) is not None:
            written.setdefault(value, {})[text] = math.exp(log_probability)
    values = sorted(written)
    masses = np.array([math.fsum(written[value].values()) for value in values])
    covered = math.fsum(masses)
    if not covered:
        return Point(np.empty(0), np.empty(0), [], 0.0)
    texts = [max(written[value].items(), key=lambda item: item[1])[0] for value in values]
    return Point(np.array(values), masses / covered, texts, min(covered, 1.0))


def expectation(config: TreeConfig, **given: Any) -> Read:
    """The mean of the model's distribution of numbers, to ``config.decimals`` decimals."""
    return _read_points(config, lambda found: write_value(found.moments(config.trim)[0], config.decimals), **given)


def median(config: TreeConfig, **given: Any) -> Read:
    """The median of the model's distribution of numbers, the lower one of two, as the model would write it."""
    return _read_points(config, lambda found: found.texts[found.quantile(0.5)], **given)


def _read_points(
    config: TreeConfig,
    write: Callable[[Point], str],
    *,
    model: Any,
    tokenizer: Any,
    max_new_tokens: int,
    also: Sequence[int] = (),
    interval: float = 0.0,
    searches: dict[Any, dict[str, float]] | None = None,
) -> Read:
    """``interval``: instead of quantiles, the mean and the central interval of this share of the probability.

    ``searches`` keeps what is found, for other decodings of the same model by the same search.
    """
    tokens = NumberTokens.from_tokenizer(tokenizer, end_ids(model, tokenizer, also), model.device)
    limits = {"num_beams": config.num_beams, "max_new_tokens": max_new_tokens, "tolerance": config.tolerance}

    def answer(numbers: Mapping[str, float]) -> Answer:
        found = point(numbers)
        if not found.covered:
            return Answer("", [], {"covered": 0.0})
        mean, sd = found.moments(config.trim)
        shares = (0.5 - interval / 2, 0.5 + interval / 2) if interval else QUANTILES
        ends = [float(found.values[found.quantile(share)]) for share in shares]
        if interval:
            return Answer(write(found), [], {"mean": mean, "interval": ends, "sd": sd, "covered": found.covered})
        quantiles = dict(zip(map(str, QUANTILES), ends, strict=True))
        about = {"covered": found.covered, "sd": sd, "quantiles": quantiles, DISTRIBUTION: found}
        return Answer(write(found), [], about)

    known = {} if searches is None else searches

    def read(batch: Sequence[Example], inputs: Mapping[str, torch.Tensor]) -> list[Answer]:
        keys = [(*limits.values(), *map(int, example["question_ids"])) for example in batch]
        if not all(key in known for key in keys):
            known.update(zip(keys, read_numbers(model, inputs, tokens, **limits), strict=True))
        return [answer(known[key]) for key in keys]

    return read
