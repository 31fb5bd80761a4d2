"""Metrics of plain text, from the sums of each document: no model, no text.

A document's row has ``tokens``, the number of its tokens with its end token, and ``ce``, the sum of their cross
entropies in nats, each token given those before it; ``numbers`` of them are number tokens, ``right`` of these the most
probable of all tokens. ``error`` sums |v − label| where v is the value of the most probable number token, and
``mean_error`` where v is the mean of the distribution over number tokens.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def likelihood_metrics(rows: Sequence[Mapping[str, Any]], size: int, *, digits: bool) -> dict[str, float]:
    """Metrics of N documents of ``size`` UTF-8 bytes together.

    ce: mean over all tokens, in nats. perplexity: e to that power, inf beyond float64. bits_per_byte: the sum of all
    cross entropies in bits, over the bytes; it compares models with different tokenizers. count, tokens, digits: N, all
    tokens, those that are digits. digit_accuracy: share of these where the right one is the most probable of all
    tokens. digit_mae, digit_mae_mean: mean absolute error of the most probable digit, and of the mean digit. With
    ``digits=False`` a number token may have several digits, and "digit" is "number" in these names. NaN where there is
    nothing to average.
    """
    tokens, numbers = (sum(row[name] for row in rows) for name in ("tokens", "numbers"))
    nats = math.fsum(row["ce"] for row in rows)
    ce = _ratio(nats, tokens)
    unit = "digit" if digits else "number"
    sums = {"accuracy": "right", "mae": "error", "mae_mean": "mean_error"}
    return {
        "ce": ce,
        "perplexity": math.exp(ce) if not ce > 700 else math.inf,
        "bits_per_byte": _ratio(nats / math.log(2), size),
        **{f"{unit}_{name}": _ratio(math.fsum(row[key] for row in rows), numbers) for name, key in sums.items()},
        "count": float(len(rows)),
        "tokens": float(tokens),
        f"{unit}s": float(numbers),
    }


def _ratio(total: float, count: int) -> float:
    return total / count if count else math.nan
