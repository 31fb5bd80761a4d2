"""A distribution over numbers, and the one of a tree of prefixes of which a search has read a part.

A prefix that was not read on keeps its probability: it continues as one of as many digits that was. So "173" ends, or
goes on, with the probabilities of "170", if that stands for it.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from ntl.numbers import parse_number

# Leaves room in float64 for a mean and a standard deviation.
LARGEST = 1e300
# How exact a sum of float32 probabilities is.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class NumberDistribution:
    """Numbers in ascending order and their probabilities, (V,) float64, and the likeliest text of each.

    The probabilities sum to ``represented``, at most 1; ``covered`` is the part that was read to its end. Statistics
    are conditional on the answer being one of these numbers; without any number, they raise ValueError.
    """

    values: np.ndarray
    probabilities: np.ndarray
    texts: Sequence[str]
    covered: float

    @classmethod
    def of(cls, numbers: Mapping[str, float], covered: float = 1.0) -> Self:
        """From text -> probability: texts of one value added up, no numbers and those above LARGEST left out."""
        written: defaultdict[float, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for text, mass in numbers.items():
            if (value := _value(text.strip())) is not None:
                written[value][text.strip()] += mass
        values = sorted(written)
        masses = np.array([math.fsum(written[value].values()) for value in values])
        texts = [max(written[value].items(), key=lambda item: item[1])[0] for value in values]
        return cls(np.array(values), masses / max(math.fsum(masses), 1.0), texts, min(covered, math.fsum(masses), 1.0))

    def __repr__(self) -> str:
        if not self.represented:
            return f"NumberDistribution(no number, covered {self.covered:.3g})"
        low, high = self.interval(0.9)
        summary = f"median={self.median:.6g}, mean={self.mean:.6g}, 90% in [{low:.6g}, {high:.6g}]"
        return f"NumberDistribution({summary}, {len(self.values):,} numbers, covered {self.covered:.3g})"

    @property
    def represented(self) -> float:
        """The probability of all of these numbers."""
        return math.fsum(self.probabilities)

    @cached_property
    def shares(self) -> np.ndarray:
        """The probabilities, given that the answer is one of these numbers: they sum to 1, (V,)."""
        if not self.represented:
            raise ValueError("the distribution has no number")
        return self.probabilities / self.represented

    @property
    def mean(self) -> float:
        """The mean of all values, unlikely large ones included; the mean of ``moments`` may be trimmed."""
        return self.moments()[0]

    @property
    def median(self) -> float:
        """The value at one half of the probability, the lower one of two."""
        return self.quantile(0.5)

    def moments(self, trim: float = 0.0) -> tuple[float, float]:
        """Mean and standard deviation without a share ``trim`` (below 1/2) at either end."""
        ends = np.cumsum(self.shares).clip(trim, 1 - trim)
        weights = np.diff(ends, prepend=trim)
        kept = weights > 0
        weights, values = weights[kept] / weights[kept].sum(), self.values[kept]
        # Squares of values near float64's end would overflow.
        scale = float(np.abs(values).max()) or 1.0
        mean = np.dot(weights, values / scale)
        return float(mean) * scale, math.sqrt(np.dot(weights, (values / scale - mean) ** 2)) * scale

    def place(self, share: float) -> int:
        """The index of the least value v for which P(number <= v) is at least ``share``. ValueError: not in [0, 1]."""
        if not 0 <= share <= 1:
            raise ValueError(f"{share}: a share of the probability is from 0 to 1")
        return int(np.searchsorted(np.cumsum(self.shares), share - ROUNDING).clip(max=len(self.values) - 1))

    def quantile(self, share: float) -> float:
        """The least value v for which P(number <= v) is at least ``share``."""
        return float(self.values[self.place(share)])

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval of this share of the probability; of 0, the median twice."""
        if not 0 <= level <= 1:
            raise ValueError(f"{level}: the level of an interval is from 0 to 1")
        return self.quantile(0.5 - level / 2), self.quantile(0.5 + level / 2)

    def sample(self, count: int, seed: int = 0) -> np.ndarray:
        """Independent numbers, (count,), the same ones for a seed."""
        return np.random.default_rng(seed).choice(self.values, count, p=self.shares)

    def crps(self, label: float) -> float:
        """The continuous ranked probability score, E|X - label| - E|X - X'|/2, in the unit of the values."""
        # 1 - below would round what is above, which may be far away.
        below, above = np.cumsum(self.shares)[:-1], np.cumsum(self.shares[::-1])[::-1][1:]
        return float(self.shares @ np.abs(self.values - label) - (below * above) @ np.diff(self.values))


@lru_cache(maxsize=1 << 16)
def _value(text: str) -> float | None:
    """The number that a text writes, which other examples write, too; None for none, or for one above ``LARGEST``."""
    parsed = parse_number(text)
    return float(parsed) if parsed is not None and abs(float(parsed)) <= LARGEST else None


def thin(masses: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """At most ``count`` of N masses that stand for all: their places, ascending, and what each stands for.

    Above a share c each stands for itself; of the others, in their order, every one at which another c is full stands
    for c (Fearnhead and Clifford, 2003).
    """
    places = np.flatnonzero(masses)
    if len(places) <= count:
        return places, masses[places]
    mass = masses[places] / (most := masses.max())
    ascending = np.sort(mass)
    rest = ascending.cumsum()[: -count - 1 : -1] / np.arange(count, 0, -1)
    c = rest[min(int((ascending[: -count - 1 : -1] > rest).sum()), count - 1)]
    full = np.where(mass < c, mass, 0.0).cumsum() / c + 0.5
    chosen = (mass >= c) | (np.diff(np.floor(full), prepend=0) > 0)
    return places[chosen], np.maximum(masses[places[chosen]], c * most)


def represent(masses: np.ndarray, shapes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of N prefixes are read on, ascending, and which of these each of the N goes on as: itself or the nearest.

    Near is what has the same shape and little mass between. Beyond ``count``, a shape that would have none has one,
    unless it has hardly any mass: -1.
    """
    order = np.argsort(shapes, kind="stable")
    order = order[masses[order] > 0]
    mass, shape, places = masses[order] / masses.max(), shapes[order], np.arange(len(order))
    least = mass.sum() / (50 * count)
    if len(mass) > count:  # what is rarer than that is read only as one of many
        few = mass <= least
        count = min(count, int((~few).sum() + np.ceil(mass[few].sum() / least)))
    chosen, _ = thin(mass, count)
    for lost in np.setdiff1d(shape, shape[chosen]):
        if (lost_mass := mass * (shape == lost)).sum() > least / 10:
            chosen = np.union1d(chosen, lost_mass.argmax())
    middle = mass.cumsum() - mass / 2
    after = np.searchsorted(chosen, places).clip(max=len(chosen) - 1)
    pair = chosen[np.stack([(after - 1).clip(min=0), after])]
    apart = np.where(shape[pair] == shape, np.abs(middle[pair] - middle), np.inf)
    like, read = pair[apart.argmin(0), places], np.sort(order[chosen])
    like[chosen] = chosen  # also where a mass is lost in rounding
    goes_on = np.full(len(masses), -1)
    goes_on[order] = np.where(apart.min(0) < np.inf, np.searchsorted(read, order[like]), -1)
    return read, goes_on


def represent_all(
    log_EN: np.ndarray, shape_EN: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """`represent` for each example: (E, W) which are read, 0 for none, what they stand for, and as which the N go on.

    Log probabilities are taken and given, and fewer are read of an example where little is open; not in proportion,
    for what is long is large.
    """
    most_E1 = log_EN.max(1, keepdims=True).clip(min=-LARGEST)
    mass_EN = np.exp(log_EN - most_E1)
    counts = np.ceil(count * np.sqrt(mass_EN.sum(1) * np.exp(most_E1[:, 0]))).astype(int).clip(min=1, max=count)
    represented = [represent(*example) for example in zip(mass_EN, shape_EN, counts.tolist(), strict=True)]
    index_EW = np.zeros((len(represented), max(len(read) for read, _ in represented)), dtype=np.int64)
    stand_EW = np.zeros(index_EW.shape)
    for e, (read, like) in enumerate(represented):
        index_EW[e, : len(read)] = read
        stand_EW[e] = np.bincount(like[like >= 0], mass_EN[e][like >= 0], minlength=index_EW.shape[1])
    with np.errstate(divide="ignore"):
        return index_EW, np.log(stand_EW) + most_E1, [like for _, like in represented]
