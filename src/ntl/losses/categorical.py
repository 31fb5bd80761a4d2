"""Losses that know no distance: cross-entropy, and the control for the number losses.

Shape suffixes: V vocabulary, K number tokens, N the positions that count.
"""

import torch.nn.functional as F
from torch import Tensor

from ntl.losses.rows import NumberRows, Reduction, label_rows, number_rows, reduce
from ntl.numbers import NumberVocabulary


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """−log p_y with p = softmax over the whole vocabulary: the CE term of the paper's total loss, CE + λ·NTL.

    logits (..., V), labels (...); number_vocab is not used. The mean is over all labelled tokens, numbers and text;
    without any it is an exact 0 with a graph. A label whose logit is -inf has the loss inf.
    """
    rows = label_rows(logits, labels, ignore_index)
    losses_N = F.cross_entropy(rows.logits_NV, rows.labels_N, ignore_index=ignore_index, reduction="none")
    return reduce(losses_N, rows, labels, reduction)


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
