"""Mean, spread and interval over seeds; the exact test of paired differences; the bootstrap over test examples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np

from ntl.results.packing import unpack_bits, unpack_errors
from ntl.results.record import RunRecord

LEVEL = 0.95
ALPHA = 0.05
MOST_FLIPS = 2**20
# Bootstrap draws for the scores that a record has of each example. Errors take many values, each of which costs.
DRAWS = {"accuracy": 10_000, "mae": 2_000}


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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def summarize(values: Sequence[float | None]) -> Summary:
    """Mean, sd and interval of the defined values; None and non-finite ones are counted, never dropped silently.

    A sd beyond float64 is None.
    """
    good = tuple(float(value) for value in values if value is not None and math.isfinite(value))
    n, sd, low, high = len(good), None, None, None
    mean = fmean(good) if good else None
    if mean is not None and n > 1:
        sd = _finite(math.sqrt(math.fsum((value - mean) * (value - mean) for value in good) / (n - 1)))
    if mean is not None and sd is not None and n > 2:
        from scipy.special import stdtrit  # here, since it takes longer to load than a command's help

        half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * sd / math.sqrt(n)
        low, high = mean - half, mean + half
    return Summary(good, len(values) - n, mean, sd, low, high)


@cache
def sign_flip_p(differences: tuple[float, ...]) -> float:
    """Exact two-sided p of the mean of paired differences under all 2^n flips of their signs; above 20, of 2^20 flips.

    The share of flips whose mean is at least as far from 0 as the observed one, which counts as one of them: p is never
    below ``smallest_p(n)``.
    """
    from scipy.stats import permutation_test

    # A flip that ties with the observed sum may differ from it in the last digits.
    seen = abs(math.fsum(differences)) - 1e-9 * math.fsum(map(abs, differences))

    def is_as_far(values: np.ndarray, axis: int) -> np.ndarray:
        return (np.abs(np.sum(values, axis=axis)) >= seen).astype(float)

    flips = {"permutation_type": "samples", "alternative": "greater", "n_resamples": MOST_FLIPS, "rng": 0}
    return float(permutation_test((differences,), is_as_far, vectorized=True, **flips).pvalue)


def smallest_p(n: int) -> float:
    """The smallest possible ``sign_flip_p`` of n differences, 2 / 2^n."""
    return 2.0 ** (1 - n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the i-th smallest of m times m - i + 1, never below one before it, at most 1."""
    corrected, least = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = least
    return corrected


def bootstrap_difference(
    base: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray, draws: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean of other - base over the same N test examples, and its 95 % percentile bootstrap interval.

    Works on correctness (booleans) as on errors. It covers the choice of test examples, never the seed of training.
    Resampling N examples is a multinomial draw over the distinct differences, so 0/1 scores cost three counts a draw.
    """
    left, right = np.asarray(base, dtype=np.float64), np.asarray(other, dtype=np.float64)
    values, counts = np.unique(right - left, return_counts=True)
    rng, shares = np.random.default_rng(seed), counts / left.size
    means = np.concatenate(
        [rng.multinomial(left.size, shares, size=min(500, draws - start)) @ values for start in range(0, draws, 500)]
    )
    low, high = np.quantile(means / left.size, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(values @ counts / left.size), float(low), float(high)


def example_difference(metric: str, pairs: Sequence[tuple[RunRecord, RunRecord]]) -> tuple[float, float, float] | None:
    """Second minus first over the same examples: mean and 95 % bootstrap interval; None without such scores.

    An example's score is its mean over ``pairs``, one pair per seed. Errors are those of the fixed sample that a record
    keeps; an example that one run leaves unanswered is left out on both sides.
    """
    split, _, name = metric.partition("/")
    tests = {record.ids_sha256.get(split) for pair in pairs for record in pair}
    if name not in DRAWS or len(tests) != 1 or None in tests:
        return None
    scores = [_scores(split, name, record) for pair in pairs for record in pair]
    if any(each is None for each in scores):
        return None
    left, right = (np.mean(np.array(scores[side::2], dtype=np.float64), axis=0) for side in (0, 1))
    known = np.isfinite(left) & np.isfinite(right)
    return bootstrap_difference(left[known], right[known], draws=DRAWS[name]) if known.any() else None


def _scores(split: str, name: str, record: RunRecord) -> np.ndarray | None:
    if name == "accuracy":
        count = record.metrics.get(f"{split}/count")
        return unpack_bits(record.correct[split], int(count)) if count and split in record.correct else None
    return unpack_errors(record.errors[split]) if split in record.errors else None
