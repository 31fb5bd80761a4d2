"""The paper's NTL-L_p family: a regression loss between the expected value and the value of the label.

For a number label of value y, ŷ = Σ_k q_k v_k with q = softmax over the K number tokens alone. None of these losses has
its only minimum at the label: half the mass on each of 0 and 8 is a perfect 4.

Shape suffixes: V vocabulary, K number tokens, N the number-labelled positions.
"""

import torch.nn.functional as F
from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.rows import NumberRows, Reduction, number_rows, reduce
from ntl.numbers import NumberVocabulary


def ntl_mse(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """(ŷ − y)², the paper's NTL-MSE, in squared value units.

    logits (..., V), labels (...). The mean is over number labels; without any it is an exact 0 with a graph. A row of
    -inf number logits counts as uniform and has no gradient.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    return reduce(mse_rows(rows), rows, labels, reduction)


def ntl_mae(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """|ŷ − y|, the paper's NTL-MAE, in value units. Shapes, mean and special rows as in `ntl_mse`."""
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    return reduce(mae_rows(rows), rows, labels, reduction)


def ntl_huber(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    delta: float = 1.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """½e² where |e| < δ, else δ(|e| − ½δ), with e = ŷ − y: the paper's NTL-Huber, where δ = 1.

    Shapes, mean and special rows as in `ntl_mse`.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    return reduce(huber_rows(rows, delta=delta), rows, labels, reduction)


def mse_rows(rows: NumberRows) -> Tensor:
    """(N,), see `ntl_mse`."""
    return (expectation(rows) - rows.targets_N).square()


def mae_rows(rows: NumberRows) -> Tensor:
    """(N,), see `ntl_mae`."""
    return (expectation(rows) - rows.targets_N).abs()


def huber_rows(rows: NumberRows, *, delta: float = 1.0) -> Tensor:
    """(N,), see `ntl_huber`."""
    return F.huber_loss(expectation(rows), rows.targets_N, delta=delta, reduction="none")


def expectation(rows: NumberRows) -> Tensor:
    """(N,): ŷ, the mean of the values under softmax over the number tokens."""
    # A product and a sum, not a matrix product, which autocast would take in half precision.
    return (rows.logits_NK.softmax(dim=-1) * rows.values_K).sum(dim=-1)


register("mse", ntl_mse, rows=mse_rows)
register("mae", ntl_mae, rows=mae_rows)
register("huber", ntl_huber, rows=huber_rows)
