"""Regression losses: the paper's NTL-L_p family on number tokens, and the squared error of a number head.

For a number label of value y, an NTL-L_p compares y with ŷ = Σ_k q_k v_k, q the softmax over the K number tokens alone.
Its minimum is not unique: for the label 4, half the mass on each of 0 and 8 is a perfect prediction, too.
"""

import torch.nn.functional as F
from torch import Tensor

from ntl.losses.registry import register
from ntl.losses.rows import NumberRows, Reduction, check_positive, check_reduction, of_number_rows, upcast


@of_number_rows
def ntl_mse(rows: NumberRows) -> Tensor:
    """Return (ŷ − y)², the paper's NTL-MSE, in squared value units."""
    return (expectation(rows) - rows.targets_N).square()


@of_number_rows
def ntl_mae(rows: NumberRows) -> Tensor:
    """Return |ŷ − y|, the paper's NTL-MAE, in value units."""
    return (expectation(rows) - rows.targets_N).abs()


@of_number_rows
def ntl_huber(rows: NumberRows, *, delta: float = 1.0) -> Tensor:
    """Return ½e² where |e| < δ, else δ(|e| − ½δ), with e = ŷ − y: the paper's NTL-Huber, which uses δ = 1."""
    check_positive("delta", delta)
    return F.huber_loss(expectation(rows), rows.targets_N, delta=delta, reduction="none")


def squared_error(predictions: Tensor, targets: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return (prediction − target)², the loss of the paper's regression head (Table 4) and of xVal's number head.

    predictions and targets are (...), in the same unit. Half-precision predictions are computed and returned in
    float32. "mean" is over all of them, and an exact 0 that still has a graph if there are none; "none" has their
    shape. Raises ValueError if the shapes differ.
    """
    if predictions.shape != targets.shape:
        raise ValueError(f"predictions {tuple(predictions.shape)} and targets {tuple(targets.shape)} differ in shape")
    predictions = upcast(predictions)
    errors = (predictions - targets.to(predictions.dtype)).square()
    check_reduction(reduction)
    if reduction == "none":
        return errors
    return errors.sum() if reduction == "sum" else errors.sum() / max(errors.numel(), 1)


def expectation(rows: NumberRows) -> Tensor:
    """Return ŷ (N,), the mean of the values under the softmax over the number tokens."""
    # Not a matrix product, which autocast would compute in half precision.
    return (rows.logits_NK.softmax(dim=-1) * rows.values_K).sum(dim=-1)


register("mse", ntl_mse)
register("mae", ntl_mae)
register("huber", ntl_huber)
