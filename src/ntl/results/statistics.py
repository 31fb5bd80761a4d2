"""Mean, spread and interval over seeds; the exact test of paired differences; the bootstrap over test examples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np

from ntl.results.packing import unpack_bits
from ntl.results.record import RunRecord

LEVEL = 0.95
ALPHA = 0.05
MOST_FLIPS = 2**20


@dataclass(frozen=True)
class Summary:
    """Values over seeds, in seed order. ``values`` are the defined ones; ``undefined`` counts the others.

    sd has the denominator n - 1 and is None below two values; low and high are the 95 % t interval of the mean,
    None below three values.
    """

    values: tuple[float, ...]
    undefined: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None

    @property
    def n(self) -> int:
        return len(self.values)


def summarize(values: Sequence[float | None]) -> Summary:
    """Mean, sd and interval of the defined values; None and non-finite ones are counted, never dropped silently.

    A sd beyond float64 is None.
    """
    good = tuple(float(value) for value in values if value is not None and math.isfinite(value))
    n, sd, low, high = len(good), None, None, None
    mean = fmean(good) if good else None
    if mean is not None and n > 1:
        sd = math.sqrt(math.fsum((value - mean) * (value - mean) for value in good) / (n - 1))
        sd = sd if math.isfinite(sd) else None
    if mean is not None and sd is not None and n > 2:
        from scipy.special import stdtrit  # here, since it takes longer to load than a command's help

        half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * sd / math.sqrt(n)
        low, high = mean - half, mean + half
    return Summary(good, len(values) - n, mean, sd, low, high)


@cache
def sign_flip_p(differences: tuple[float, ...]) -> float:
    """Exact two-sided p of the mean of paired differences under all 2^n flips of their signs; above 20, of 2^20 flips.

    The share of flips whose mean is at least as far from 0 as the observed one, which counts as one of them: p is never
    below 2 / 2^n.
    """
    from scipy.stats import permutation_test

    # A flip that ties with the observed sum may differ from it in the last digits.
    seen = abs(math.fsum(differences)) - 1e-9 * math.fsum(map(abs, differences))

    def is_as_far(values: np.ndarray, axis: int) -> np.ndarray:
        return (np.abs(np.sum(values, axis=axis)) >= seen).astype(float)

    flips = {"permutation_type": "samples", "alternative": "greater", "n_resamples": MOST_FLIPS, "rng": 0}
    return float(permutation_test((differences,), is_as_far, vectorized=True, **flips).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the i-th smallest of m times m - i + 1, never below one before it, at most 1."""
    corrected, least = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = least
    return corrected


def accuracy_interval(split: str, base: RunRecord, other: RunRecord) -> tuple[float, float] | None:
    """95 % percentile bootstrap interval of the accuracy of ``other`` minus that of ``base`` on the same test examples.

    It covers the choice of test examples, never the seed of training. None where the runs were not tested on the same
    examples, or a record does not say which answers were correct.
    """
    sides = []
    for record in (base, other):
        count, ids = record.metrics.get(f"{split}/count"), record.ids_sha256.get(split)
        if not count or ids is None or ids != base.ids_sha256.get(split) or split not in record.correct:
            return None
        sides.append(unpack_bits(record.correct[split], int(count)).astype(float))
    # Resampling N examples is a multinomial draw over the distinct differences, -1, 0 and 1.
    values, counts = np.unique(sides[1] - sides[0], return_counts=True)
    size = counts.sum()
    means = np.random.default_rng(0).multinomial(size, counts / size, size=10_000) @ values / size
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
