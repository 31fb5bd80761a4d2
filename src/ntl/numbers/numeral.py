"""How the numbers of a column are written: in which unit, or as logarithms, and to how many decimals."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ntl.numbers.answers import find_answer, read_list

MOST = 12  # decimals
KEPT = 1e-3  # of the standard deviation: what rounding may change


@dataclass(frozen=True)
class Numeral:
    """A number y is written as y / ``unit``, or with a ``sign`` as log10(y * sign), to so many ``decimals``.

    ``lost`` is the most that rounding has changed, in what is written.
    """

    decimals: int = 0
    unit: float = 1.0
    sign: int = 0
    lost: float = 0.0

    @classmethod
    def of(cls, y: NDArray, decimals: int | str = "auto", scale: str = "linear") -> Self:
        """For numbers (N, K), to the fewest decimals that change each by at most 0.1% of the standard deviation.

        One line advises log for numbers that span more than three powers of ten. ValueError: a scale or decimals
        that do not fit, or a column that is constant as it is written.
        """
        sizes, sign = np.abs(y), int(np.sign(y[0, 0]))
        has_log = sign != 0 and bool((np.sign(y) == sign).all())
        if scale not in ("linear", "log") or (scale == "log" and not has_log):
            raise ValueError(f"scale={scale!r}: choose linear, or log for numbers of one sign, none of them 0")
        if scale == "linear" and has_log and (powers := float(np.ptp(np.log10(sizes)))) > 3:
            line = f"y spans {powers:.1f} powers of ten, so that errors of small numbers hardly count"
            warnings.warn(f"{line}: scale='log' makes them relative", stacklevel=3)
        is_plain = scale == "log" or 1e-6 < sizes.max() < 1e15 or not sizes.any()
        unit = 1.0 if is_plain else 10.0 ** math.floor(math.log10(sizes.max()))
        numeral = cls(unit=unit, sign=sign if scale == "log" else 0)
        values = numeral.write(y)
        if decimals == "auto":
            most = KEPT * values.std(axis=0)
            decimals = next((n for n in range(MOST) if (np.abs(values.round(n) - values) <= most).all()), MOST)
        if decimals not in range(MOST + 1):
            raise ValueError(f"decimals={decimals!r}: choose auto, or a whole number from 0 to {MOST}")
        rounded = values.round(int(decimals))
        if not np.ptp(rounded, axis=0).all():
            raise ValueError(f"y is constant to {decimals} decimals: there is nothing to learn")
        lost = max(map(_merged, values.T, rounded.T))
        if lost > len(y) / 2:
            line = f"{lost:,} of {len(y):,} different numbers are written as one, to {decimals} decimals"
            warnings.warn(f"{line}: an outlier makes the others small; give decimals=, or leave it out", stacklevel=3)
        return replace(numeral, decimals=int(decimals), lost=float(np.abs(rounded - values).max()))

    def write(self, y: NDArray) -> NDArray:
        """The values that are written; NaN or -inf for what has no logarithm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log10(y * self.sign) if self.sign else y / self.unit

    def read(self, written: NDArray) -> NDArray:
        """The numbers of values that were written."""
        with np.errstate(over="ignore"):
            return self.sign * 10.0**written if self.sign else written * self.unit

    def texts(self, y: NDArray) -> list[str]:
        """Numbers (N, K) as they are written, in a row between commas."""
        rows = (self.write(y).round(self.decimals) + 0.0).tolist()
        return [", ".join(f"{value:.{self.decimals}f}" for value in row) for row in rows]


def _merged(values: NDArray, rounded: NDArray) -> int:
    """The most different values (N,) that are one when they are rounded; 1 where all stay apart."""
    return int(np.unique(np.unique(np.stack([rounded, values]), axis=1)[0], return_counts=True)[1].max())


def values_of(texts: Sequence[str], count: int) -> NDArray:
    """The numbers of answers, (N, count): NaN where one has more or fewer. A single one may stand within a text."""
    rows = ([find_answer(text)] if count == 1 else [*(read_list(text) or {}).values()] for text in texts)
    values = np.array([row if len(row) == count else [None] * count for row in rows], dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)
