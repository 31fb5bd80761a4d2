"""Losses on tokens and number tokens: tensors in, tensor out, pure functions.

Every loss is `f(logits, labels, number_vocab, *, ignore_index=-100, reduction="mean", ...)` and nothing in it shifts:
for a decoder, `logits[..., t, :]` must already be the prediction of `labels[..., t]`. Half types are computed, and
returned, in float32; float32 and float64 in their own type. Positions that do not count are dropped before anything is
computed on them, so that whatever their logits hold reaches neither the loss nor the gradient.

Reductions: "sum" over the positions that count; "mean" divides it by their number, or by 1 where there is none;
"none" has the shape of `labels`, 0 at positions that do not count. `count_labels` and `count_number_labels` are the
denominators, for means over more than one batch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.losses.categorical import cross_entropy, digit_cross_entropy
    from ntl.losses.cdf import ntl_crps, ntl_was_cdf
    from ntl.losses.cost import euclidean_cost, squashed_cost
    from ntl.losses.gaussian import gaussian_cross_entropy, gaussian_target
    from ntl.losses.lp import ntl_huber, ntl_mae, ntl_mse
    from ntl.losses.regression import squared_error
    from ntl.losses.rows import count_labels, count_number_labels
    from ntl.losses.wasserstein import ntl_was

__all__ = [
    "count_labels",
    "count_number_labels",
    "cross_entropy",
    "digit_cross_entropy",
    "euclidean_cost",
    "gaussian_cross_entropy",
    "gaussian_target",
    "ntl_crps",
    "ntl_huber",
    "ntl_mae",
    "ntl_mse",
    "ntl_was",
    "ntl_was_cdf",
    "squared_error",
    "squashed_cost",
]

_MODULES = {
    "count_labels": "rows",
    "count_number_labels": "rows",
    "cross_entropy": "categorical",
    "digit_cross_entropy": "categorical",
    "euclidean_cost": "cost",
    "gaussian_cross_entropy": "gaussian",
    "gaussian_target": "gaussian",
    "ntl_crps": "cdf",
    "ntl_huber": "lp",
    "ntl_mae": "lp",
    "ntl_mse": "lp",
    "ntl_was": "wasserstein",
    "ntl_was_cdf": "cdf",
    "squared_error": "regression",
    "squashed_cost": "cost",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
