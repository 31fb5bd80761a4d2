"""Losses that know no distance: cross-entropy, and the control for the number losses.

Shape suffixes: V vocabulary, K number tokens, N the positions that count.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.rows import NumberRows, Reduction, label_rows, number_rows, reduce
from ntl.numbers import NumberVocabulary


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary | None = None,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """−log p_y with p = softmax over the whole vocabulary: the CE term of the paper's total loss, CE + λ·NTL.

    With label_smoothing ε it is −(1 − ε) log p_y − ε/V Σ_k log p_k over all V logits, as in torch's cross_entropy and
    transformers' LabelSmoother. Not in the paper.

    logits (..., V), labels (...); number_vocab is not used. The mean is over all labelled tokens, numbers and text;
    without any it is an exact 0 with a graph. A label whose logit is -inf has the loss inf, with label_smoothing any
    label where a logit is -inf. ValueError for label_smoothing outside [0, 1).
    """
    check_smoothing(label_smoothing)
    rows = label_rows(logits, labels, ignore_index)
    how: dict[str, Any] = {"ignore_index": ignore_index, "reduction": "none", "label_smoothing": label_smoothing}
    return reduce(F.cross_entropy(rows.logits_NV, rows.labels_N, **how), rows, labels, reduction)


def check_smoothing(label_smoothing: float) -> None:
    """ValueError for a label_smoothing outside [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be at least 0 and below 1, not {label_smoothing}")


def digit_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """−log q_y with q = softmax over the K number tokens alone. Not in the paper: the control for every number loss,
    the same extra weight on number tokens without any distance between them.

    logits (..., V), labels (...). The mean is over number labels; without any it is an exact 0 with a graph. A label
    whose logit is -inf has the loss inf; a row of -inf number logits has log K and no gradient.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    return reduce(digit_cross_entropy_rows(rows), rows, labels, reduction)


def digit_cross_entropy_rows(rows: NumberRows) -> Tensor:
    """(N,), see `digit_cross_entropy`."""
    return F.cross_entropy(rows.logits_NK, rows.tokens_N, reduction="none")


def label_alone(rows: NumberRows, *, label_smoothing: float = 0.0) -> None:
    """`cross_entropy` has no soft target: what its label_smoothing spreads is the same at every label."""


register("ce", cross_entropy, is_base=True, distance=False, target=label_alone)
register("digit_ce", digit_cross_entropy, distance=False, rows=digit_cross_entropy_rows)
