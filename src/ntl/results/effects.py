"""Mean, spread and interval over seeds; what one row gains over another, paired by seed, and what may be said of it.

Sizes of errors are compared by the logarithm of their ratio, printed as percent, rates by their difference.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from operator import mul
from statistics import fmean

import numpy as np

from ntl.evaluation.metrics import Better, metric_of
from ntl.results.spec import BAND, ColumnSpec

Seeds = Mapping[int, float | None]  # the value of each seed, None where it is undefined
Groups = Sequence[Seeds]
LEVEL = 0.95
ALPHA = 0.05
MOST_FLIPS = 2**20


@dataclass(frozen=True)
class Summary:
    """Values over seeds, in seed order. ``values`` are the defined ones; ``undefined`` counts the others.

    sd has the denominator n - 1 and is None below two values; low and high are the ends of the 95 % t interval of the
    mean, None below three values.
    """

    values: tuple[float, ...] = ()
    undefined: int = 0
    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def n(self) -> int:
        return len(self.values)


def summarize(values: Sequence[float | None]) -> Summary:
    """Mean, sd and interval of the defined values; None and non-finite ones are counted, never dropped silently.

    A sd beyond float64 is None.
    """
    good = tuple(float(value) for value in values if value is not None and math.isfinite(value))
    n, undefined = len(good), len(values) - len(good)
    if not n:
        return Summary((), undefined)
    mean = fmean(good)
    sd = math.sqrt(math.fsum((value - mean) * (value - mean) for value in good) / (n - 1)) if n > 1 else math.inf
    if n < 3 or not math.isfinite(sd):
        return Summary(good, undefined, mean, sd if math.isfinite(sd) else None)
    from scipy.special import stdtrit  # here, since it takes longer to load than a command's help

    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * sd / math.sqrt(n)
    return Summary(good, undefined, mean, sd, mean - half, mean + half)


@cache
def sign_flip_p(differences: tuple[float, ...]) -> float:
    """Exact two-sided p of the mean of paired differences under all 2^n flips of their signs; above 20, of 2^20 flips.

    The share of flips whose mean is at least as far from 0 as the observed one, which counts as one of them: p is never
    below 2 / 2^n.
    """
    # A flip that ties with the observed sum may differ from it in the last digits.
    seen = abs(math.fsum(differences)) - 1e-9 * math.fsum(map(abs, differences))
    if 2 ** len(differences) > MOST_FLIPS:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(MOST_FLIPS, len(differences)))
        return float((1 + np.count_nonzero(np.abs(signs @ differences) >= seen)) / (1 + MOST_FLIPS))
    sums = np.zeros(1)  # in a hundredth of the time of scipy's permutation_test, which makes all flips one by one
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return float(np.mean(np.abs(sums) >= seen))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the i-th smallest of m times m - i + 1, never below one before it, at most 1."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    p[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(len(p), 0, -1) * p[order]))
    return p.tolist()


class Outcome(Enum):
    """What a comparison says of a claim; ``depends`` is of several tasks alone."""

    supported = "supported"
    contradicted = "contradicted"
    equivalent = "equivalent"
    depends = "depends on the task"
    inconclusive = "inconclusive"
    not_testable = "not testable"
    not_run = "not run"


@dataclass(frozen=True)
class Effect:
    """The effects of the seeds that both rows have: log ratios for ``ratio``, else differences; other minus base.

    ``band`` is the smallest effect that matters, on the same scale. ``nats``: a unit of them as a natural logarithm, 1
    of ratios; 0 where they are of no logarithms.
    """

    column: ColumnSpec
    summary: Summary
    ratio: bool
    band: float
    nats: float

    @property
    def gain(self) -> tuple[float, float] | None:
        """The ends of the 95 % t interval, positive where the row is better; None below three seeds."""
        if self.summary.low is None or self.summary.high is None:
            return None
        low, high = sorted(self.column.better.value * end for end in (self.summary.low, self.summary.high))
        return low, high

    def p(self, says_better: bool) -> float | None:
        """Two-sided p of the t test that decides ``outcome``, for a correction; None below three seeds."""
        if self.summary.sd is None or self.summary.mean is None or self.summary.n < 3:
            return None
        from scipy.special import stdtr

        beyond = abs(self.column.better.value * self.summary.mean + (0.0 if says_better else self.band))
        if not self.summary.sd:
            return 0.0 if beyond else 1.0
        return 2 * float(stdtr(self.summary.n - 1, -beyond / self.summary.sd * math.sqrt(self.summary.n)))

    @property
    def power(self) -> str:
        """``; half width 21%`` of the interval: an effect of this size is found about every second time."""
        if not self.gain:
            return ""
        half = (self.gain[1] - self.gain[0]) / 2
        return f"; half width {f'{math.expm1(half):.0%}' if self.ratio else format(half, self.column.format)}"

    @property
    def short(self) -> str:
        """``-29.0% [-42.4, -12.5]``; the values themselves below three seeds, ``undefined`` where one seed is."""

        def text(value: float) -> str:
            # An end of an interval that rounds to 0 keeps its sign: "-0.0" says that 0 is inside.
            return f"{100 * math.expm1(value):+.1f}%" if self.ratio else format(value, f"+{self.column.format}")

        if self.summary.mean is None:
            return "undefined"
        if self.summary.low is None or self.summary.high is None:
            return ", ".join(map(text, self.summary.values))
        low, high = (text(end).removesuffix("%") for end in (self.summary.low, self.summary.high))
        return f"{text(self.summary.mean)} [{low}, {high}]"

    @property
    def text(self) -> str:
        """``-29.0% [-42.4, -12.5], n = 8, better in 8 of 8, exact p = 0.0078``; values alone below three seeds."""
        summary, n = self.summary, self.summary.n
        if summary.mean is None:
            return f"undefined for {summary.undefined} seed{'s' * (summary.undefined > 1)}"
        text = f"{self.short}, n = {n}"
        if summary.low is None:
            return text
        sign, *signs = np.sign([summary.mean, *summary.values]).tolist()
        side = {1: "better", -1: "worse", 0: "equal"}[sign * self.column.better.value]
        text = f"{text}, {side} in {signs.count(sign)} of {n}"
        # No p that n cannot bring below the level is printed: it would read as a failure of the data.
        return f"{text}, exact p = {sign_flip_p(summary.values):.2g}" if 2.0 ** (1 - n) < ALPHA else text

    def outcome(self, says_better: bool = True) -> Outcome:
        """For the claim that the row is better, or that it is no worse by the band or more."""
        if self.gain is None:
            return Outcome.inconclusive
        low, high = self.gain
        if says_better and -self.band <= low and high <= self.band:
            return Outcome.equivalent
        least = 0.0 if says_better else -self.band
        return Outcome.supported if low > least else Outcome.contradicted if high < least else Outcome.inconclusive


def effect(
    column: ColumnSpec, base: Groups, other: Groups, band: float = BAND, less: Sequence[Groups] = ()
) -> Effect | None:
    """The effect of ``other`` over ``base``, each averaged within a seed over one or more groups; None without one.

    ``less``: another base and other, whose effect is subtracted seed by seed. A seed that is undefined on any side
    makes the whole effect undefined, since leaving it out would compare only the seeds on which a row did well. An
    error of 0 has no logarithm, and is undefined, too. What is in log points or bits is a logarithm already.
    """
    nats = {"log points": 1.0, "bits": math.log(2)}.get(metric_of(column.metric).unit, 0.0)
    ratio = column.better is Better.lower and not nats
    sides = (base, other, *less)

    def mean(side: Groups, seed: int) -> float | None:
        values = [value for group in side if (value := group[seed]) is not None and (value > 0 or not ratio)]
        return fmean(map(math.log, values) if ratio else values) if len(values) == len(side) else None

    seeds = sorted(set.intersection(*(set(group) for side in sides for group in side)))
    rows = [[value for side in sides if (value := mean(side, seed)) is not None] for seed in seeds]
    if not rows:
        return None
    signs = (-1, 1, 1, -1)
    summary = summarize([sum(map(mul, signs, row)) if len(row) == len(sides) else None for row in rows])
    if summary.undefined:
        summary = Summary(undefined=summary.undefined)
    rates, nats = [abs(row[0]) for row in rows if row], 1.0 if ratio else nats
    return Effect(column, summary, ratio, math.log1p(band) / nats if nats else band * fmean(rates or [0.0]), nats)


def beats(column: ColumnSpec, base: Groups, heuristic: float) -> bool:
    """Whether the whole 95 % interval of the baseline is better than a heuristic."""
    gap = effect(column, [dict.fromkeys(group, heuristic) for group in base], base)
    return gap is not None and gap.gain is not None and gap.gain[0] > 0
