"""A distribution over numbers, and the one of a tree of prefixes of which a search has read a part.

A prefix that was not read on keeps its probability: it continues as the nearest prefix of the same shape (sign, digits
and point) that was. So "173" ends, or goes on, with the probabilities of "170" if that is the nearest of three digits.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Self

import numpy as np

from ntl.numbers import parse_number

# Leaves room in float64 for a mean and a standard deviation.
LARGEST = 1e300
# How exact a sum of float32 probabilities is; a piece of less probability that was not read on is left out.
ROUNDING = 1e-6
_SIGNS = "+-\N{MINUS SIGN}"
_ZEROS = str.maketrans("123456789", "000000000")


@dataclass(frozen=True, eq=False)
class NumberDistribution:
    """Numbers in ascending order and their probabilities, (V,) float64, and the likeliest text of each.

    The probabilities sum to ``represented``, at most 1; ``covered`` is the part that was read to its end. Statistics
    are conditional on the answer being one of these numbers. ValueError of all of them: there is none.
    """

    values: np.ndarray
    probabilities: np.ndarray
    texts: Sequence[str]
    covered: float

    @classmethod
    def of(cls, numbers: Mapping[str, float], covered: float = 1.0) -> Self:
        """From text -> probability; those of one value are added up, no numbers and those above LARGEST left out."""
        written: defaultdict[float, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for text, mass in numbers.items():
            if (value := _value(text.strip())) is not None:
                written[value][text.strip()] += mass
        values = sorted(written)
        masses = np.array([math.fsum(written[value].values()) for value in values])
        texts = [max(written[value].items(), key=lambda item: item[1])[0] for value in values]
        return cls(np.array(values), masses / max(math.fsum(masses), 1.0), texts, min(covered, math.fsum(masses), 1.0))

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
        """The mean of all values, unlikely large ones included; that of ``moments`` may be trimmed."""
        return self.moments()[0]

    @property
    def median(self) -> float:
        """The lower one of two."""
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


@dataclass(eq=False)
class Prefix:
    """A prefix that was read: its probability, that of the answer ending there, and those of the K pieces behind it.

    ``longer``: by their piece, those behind it that were read, too. ``rests``: what may be behind it, "" included.
    """

    text: str
    mass: float
    end: float
    next_K: np.ndarray
    longer: "dict[int, Prefix]" = field(default_factory=dict)
    rests: dict[str, float] = field(default_factory=dict)

    @cached_property
    def _bounds(self) -> tuple[list[str], list[float]]:
        return [*self.rests], [*accumulate(self.rests.values())]

    def some(self, count: int, offset: float) -> list[tuple[str, float]]:
        """So many of the rests, all of one probability: those at evenly spaced shares, the first at offset / count."""
        (rests, bounds), last = self._bounds, len(self.rests) - 1
        steps = ((step + offset) / count * bounds[-1] for step in range(count))
        return [(rests[min(bisect_left(bounds, step), last)], bounds[-1] / count) for step in steps]


def complete(prefixes: Sequence[Prefix], pieces: Sequence[str], grain: float) -> NumberDistribution:
    """The numbers of a tree whose first prefix is its root.

    What was not read goes on as the nearest prefix does, in numbers of a probability of about ``grain`` each.
    """
    alike: defaultdict[str, list[tuple[int, Prefix]]] = defaultdict(list)
    for prefix in sorted(prefixes, key=lambda each: _digits(each.text)):
        alike[_shape(prefix.text)].append((_digits(prefix.text), prefix))

    def nearest(text: str) -> Prefix | None:
        shape, digits = _shape(text), _digits(text)
        known = shape and (alike.get(shape) or alike.get(shape.lstrip(_SIGNS) or shape))
        if not known:
            return None
        place = bisect_left(known, digits, key=lambda each: each[0])
        return min(known[max(place - 1, 0) : place + 1], key=lambda each: abs(each[0] - digits))[1]

    offset = 0.0
    # What is longer first: a prefix takes over what is behind it.
    for prefix in sorted(prefixes, key=lambda each: len(_shape(each.text).lstrip(_SIGNS)))[::-1]:
        rests = defaultdict(float, {"": prefix.end} if prefix.end > 0 else {})
        for piece in {*map(int, np.flatnonzero(prefix.next_K > ROUNDING)), *prefix.longer}:
            share, text, own = float(prefix.next_K[piece]), pieces[piece], prefix.longer.get(piece)
            like, known = own or nearest(prefix.text + text), [("", 1.0)]
            if like is not None:
                known, count = like.rests.items(), math.ceil(share * prefix.mass / grain)
                if own is None and count < len(known):
                    # By the golden ratio, so that the rests of many prefixes are together as likely as they should be.
                    offset = (offset + (math.sqrt(5) - 1) / 2) % 1
                    known = like.some(count, offset)
            for rest, behind in known:
                rests[text + rest] += share * behind
        prefix.rests = rests
    return NumberDistribution.of(prefixes[0].rests, math.fsum(each.mass * each.end for each in prefixes))


def _shape(text: str) -> str:
    return text.strip().translate(_ZEROS)


def _digits(text: str) -> int:
    return int("".join(each for each in text if "0" <= each <= "9") or 0)
