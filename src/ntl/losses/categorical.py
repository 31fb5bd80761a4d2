"""Cross-entropies: plain, of the number tokens alone (the control for the number losses), and Gaussian (GCE)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.losses.registry import register
from ntl.losses.rows import (
    NumberRows,
    Reduction,
    check_width,
    is_number,
    keeps_shapes,
    label_rows,
    of_number_rows,
    reduce,
)
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
    transformers' LabelSmoother. Label smoothing is not in the paper. number_vocab is not used.

    The loss of a label is inf if its logit is -inf, or with label_smoothing if any logit of its row is. Raises
    ValueError for label_smoothing outside [0, 1).
    """
    check_smoothing(label_smoothing)
    rows = label_rows(logits, labels, ignore_index)
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": "none", "label_smoothing": label_smoothing}
    return reduce(F.cross_entropy(rows.logits_NV, rows.labels_N, **options), rows, labels, reduction)


def check_smoothing(label_smoothing: float) -> None:
    """Raise ValueError for a label_smoothing outside [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be at least 0 and below 1, not {label_smoothing}")


@of_number_rows
def digit_cross_entropy(rows: NumberRows) -> Tensor:
    """Return −log q_y with q the softmax over the K number tokens alone.

    Not in the paper. It is the control for every number loss: the same extra weight on number tokens, but without any
    distance between them. The loss of a label is inf if its logit is -inf.
    """
    return F.cross_entropy(rows.logits_NK, rows.tokens_N, reduction="none")


def gaussian_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    sigma: float = 1.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return −Σ_k g_k log p_k at a number label, g = `gaussian_target`, and −log p_y at a text label: the paper's GCE.

    p is the softmax over the whole vocabulary, unlike in the number losses. sigma is in value units; the paper's runs
    used 1 and 2. The loss is inf if a number token with positive target mass has the logit -inf.
    """
    check_width(logits, number_vocab)
    rows = label_rows(logits, labels, ignore_index)
    log_p_NV = F.log_softmax(rows.logits_NV, dim=-1)
    losses_N = F.nll_loss(log_p_NV, rows.labels_N, ignore_index=ignore_index, reduction="none")

    numbers_N = is_number(rows.labels_N, number_vocab, ignore_index)
    every_N = torch.arange(len(losses_N), device=losses_N.device)
    index_M = every_N if keeps_shapes(labels) else numbers_N.nonzero().squeeze(-1)
    log_p_MK = log_p_NV[index_M.unsqueeze(-1), number_vocab.token_ids]
    labels_M = rows.labels_N[index_M].where(numbers_N[index_M], number_vocab.token_ids[0])
    targets_M = number_vocab.values[labels_M].to(log_p_MK.dtype)
    target_MK = gaussian_target(targets_M, number_vocab.token_values.to(log_p_MK.dtype), sigma)
    # Far from the label the target underflows to 0, and 0 · log 0 must be 0.
    number_losses_M = -(target_MK * log_p_MK.masked_fill(target_MK == 0, 0.0)).sum(dim=-1)
    number_losses_M = number_losses_M.where(numbers_N[index_M], losses_N[index_M])
    return reduce(losses_N.index_put((index_M,), number_losses_M), rows, labels, reduction)


def gaussian_target(targets: Tensor, values: Tensor, sigma: float) -> Tensor:
    """Return g_k ∝ exp(−½ ((v_k − y)/σ)²), normalised over the number tokens, (..., K).

    This is the soft target of GCE and of GCE + NTL-WAS-CDF. targets (...) are y and values (K,) are v, both in value
    units. The original adds 1e-8 to the normaliser; this is a relative difference below 1e-8, as the label's own term
    makes the normaliser at least 1.
    """
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, not {sigma}: cross_entropy is the limit for sigma towards 0")
    return (-0.5 * ((values - targets.unsqueeze(-1)) / sigma).square()).softmax(dim=-1)


def _no_target(rows: NumberRows, *, label_smoothing: float = 0.0) -> None:
    """Return None, after checking the options."""
    check_smoothing(label_smoothing)


def _soft_target(rows: NumberRows, *, sigma: float = 1.0) -> Tensor:
    return gaussian_target(rows.targets_N, rows.values_K, sigma)


register("ce", cross_entropy, is_base=True, distance=False, target=_no_target)
register("gce", gaussian_cross_entropy, is_base=True, distance=False, target=_soft_target, one_weight=True)
register("digit_ce", digit_cross_entropy, distance=False)
