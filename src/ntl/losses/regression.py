"""The loss of a number head: values in place of tokens."""

from torch import Tensor

from ntl.losses.rows import Reduction


def squared_error(predictions: Tensor, targets: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """(prediction − target)²: the regression head of the paper's Table 4, and the number head of xVal.

    predictions and targets (...) in the same unit; half types are computed, and returned, in float32. "mean" is over
    all of them, an exact 0 with a graph where there is none; "none" has their shape. ValueError for two shapes.
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
