"""The constant answers that every regression result is read against."""

from collections import Counter
from collections.abc import Iterable
from decimal import Context, Decimal

from ntl.evaluation.rules import get_rule
from ntl.numbers import format_number

CONSTANTS = ("mode", "median", "mean")

# Sums of millions of 21-digit targets are exact at 50 digits; a mean is given to 20, past what a float64 holds.
_SUM = Context(prec=50)
_MEAN = Context(prec=20)


def constant_baselines(train_targets: Iterable[str]) -> dict[str, str]:
    """Mode, median and mean of the training targets as decimal strings, computed exactly on decimals.

    Among equally frequent values the smallest is the mode. For an even count the median is the mean of the two middle
    values. The mean is rounded to 20 significant digits. ValueError: no targets, or a target without a number.
    """
    rule = get_rule("default")
    counts: Counter[Decimal] = Counter()
    for text, count in Counter(train_targets).items():
        value = rule.extract(text)
        if value is None:
            raise ValueError(f"training target {text!r} holds no number: constants exist for numeric data sets only")
        counts[value] += count
    total = counts.total()
    if total == 0:
        raise ValueError("no training targets: constants need at least one")
    ordered = sorted(counts.items())
    mode = max(ordered, key=lambda item: item[1])[0]  # the first of equal counts, hence the smallest value
    low, high = _value_at(ordered, (total - 1) // 2), _value_at(ordered, total // 2)
    median = low if low == high else _SUM.divide(_SUM.add(low, high), Decimal(2))
    weighted = Decimal(0)
    for value, count in ordered:
        weighted = _SUM.add(weighted, _SUM.multiply(value, Decimal(count)))
    mean = _MEAN.divide(weighted, Decimal(total))
    return {name: format_number(value) for name, value in zip(CONSTANTS, (mode, median, mean), strict=True)}


def _value_at(ordered: list[tuple[Decimal, int]], position: int) -> Decimal:
    seen = 0
    for value, count in ordered:
        seen += count
        if position < seen:
            return value
    raise IndexError(position)
