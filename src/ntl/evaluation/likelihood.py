"""Metrics of plain text, from the sums of each document that ``ntl.decoding.likelihood.Piece`` describes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def likelihood_metrics(rows: Sequence[Mapping[str, Any]], size: int, *, digits: bool) -> dict[str, float]:
    """Metrics of N documents of ``size`` UTF-8 bytes together.

    ce: mean over all tokens, in nats. perplexity: e to that power, inf beyond float64. bits_per_byte: the sum of all
    cross entropies in bits, over the bytes. count, tokens, digits: N, all tokens, those that are digits.
    digit_accuracy: share of these where the right one is the most probable of all tokens. digit_mae, digit_mae_mean:
    mean absolute error of the most probable digit, and of the mean digit. With ``digits=False`` a number token may have
    several digits, and "digit" is "number" in these names. NaN where there is nothing to average.
    """
    total = {name: math.fsum(row[name] for row in rows) for name in ("tokens", "ce", "numbers")}
    ce = _ratio(total["ce"], total["tokens"])
    unit = "digit" if digits else "number"
    return {
        "ce": ce,
        "perplexity": math.exp(ce) if not ce > 700 else math.inf,
        "bits_per_byte": _ratio(total["ce"] / math.log(2), size),
        **{
            f"{unit}_{name}": _ratio(math.fsum(row[key] for row in rows), total["numbers"])
            for name, key in (("accuracy", "right"), ("mae", "error"), ("mae_mean", "mean_error"))
        },
        **{"count": float(len(rows)), "tokens": total["tokens"], f"{unit}s": total["numbers"]},
    }


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan
