"""The loss of a number head, which predicts values instead of tokens."""

from torch import Tensor

from ntl.losses.rows import Reduction


def squared_error(predictions: Tensor, targets: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return (prediction − target)², the loss of the paper's regression head (Table 4) and of xVal's number head.

    predictions and targets are (...), in the same unit. Half-precision predictions are computed and returned in
    float32. "mean" is over all of them, and an exact 0 that still has a graph if there are none; "none" has their
    shape. Raises ValueError if the shapes differ.
    """
    if predictions.shape != targets.shape:
        raise ValueError(f"predictions {tuple(predictions.shape)} and targets {tuple(targets.shape)} differ in shape")
    if predictions.dtype.itemsize < 4:
        predictions = predictions.float()
    errors = (predictions - targets.to(predictions.dtype)).square()
    if reduction == "none":
        return errors
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
    return errors.sum() if reduction == "sum" else errors.sum() / max(errors.numel(), 1)
