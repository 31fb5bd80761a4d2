"""Losses that ignore the distance between numbers: cross-entropy, and the control for the number losses.

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
    """Return −log p_y with p the softmax over the whole vocabulary: the CE term of the paper's total loss, CE + λ·NTL.

    With label_smoothing ε it is −(1 − ε) log p_y − ε/V Σ_k log p_k over all V logits, as in torch's cross_entropy and
    transformers' LabelSmoother. Label smoothing is not in the paper.

    logits are (..., V), labels (...); number_vocab is not used. The mean is over all labelled tokens, numbers and text;
    without any it is an exact 0 that still has a graph. The loss of a label is inf if its logit is -inf, or with
    label_smoothing if any logit of its row is. Raises ValueError for label_smoothing outside [0, 1).
    """
    check_smoothing(label_smoothing)
    rows = label_rows(logits, labels, ignore_index)
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": "none", "label_smoothing": label_smoothing}
    return reduce(F.cross_entropy(rows.logits_NV, rows.labels_N, **options), rows, labels, reduction)


def check_smoothing(label_smoothing: float) -> None:
    """Raise ValueError for a label_smoothing outside [0, 1)."""
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
    """Return −log q_y with q the softmax over the K number tokens alone.

    Not in the paper. It is the control for every number loss: the same extra weight on number tokens, but without any
    distance between them.

    logits are (..., V), labels (...). The mean is over number labels; without any it is an exact 0 that still has a
    graph. The loss of a label is inf if its logit is -inf. A row whose number logits are all -inf has the loss log K
    and no gradient.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    return reduce(digit_cross_entropy_rows(rows), rows, labels, reduction)


def digit_cross_entropy_rows(rows: NumberRows) -> Tensor:
    """Return the loss of each row, (N,); see `digit_cross_entropy`."""
    return F.cross_entropy(rows.logits_NK, rows.tokens_N, reduction="none")


def label_alone(rows: NumberRows, *, label_smoothing: float = 0.0) -> None:
    """Return None: `cross_entropy` has no soft target of its own, as label smoothing is the same at every label."""


register("ce", cross_entropy, is_base=True, distance=False, target=label_alone)
register("digit_ce", digit_cross_entropy, distance=False, rows=digit_cross_entropy_rows)
