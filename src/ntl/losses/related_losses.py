"""Losses that others proposed, as their released code computes them.

SMMD, the smooth maximum mean discrepancy (arXiv 2606.27731): a kernel score between distributions of values. DIST2Loss
(arXiv 2503.02379): a soft target that falls with the squared distance, among number tokens alone. DEL, the digit
entropy loss (arXiv 2605.20369): binary cross-entropies of digits, weighted by place. NTIL, the numerical token
integrity loss (arXiv 2505.13077): distances of digits and of the numbers they write. EMO, earth mover distance
optimisation (arXiv 2310.04691): a transport cost between embeddings, over all tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.losses.digit_positions import after, before, check_digits, first_of, last_of, numbers_of
from ntl.losses.registry import register
from ntl.losses.rows import (
    Logits,
    NumberRows,
    Reduction,
    check_positive,
    exact,
    is_number,
    label_rows,
    number_rows,
    of_number_rows,
    reduce,
)
from ntl.losses.wasserstein import squashed
from ntl.numbers import NumberVocabulary

# Of NTIL's softmax, and the weights of its two terms of whole numbers.
_TEMPERATURE, _RELATIVE, _MAGNITUDE = 0.1, 0.2, 0.2


@of_number_rows
def smmd(rows: NumberRows, *, sigma: float = 2.0, alpha: float | None = None) -> Tensor:
    """Return SMMD, rᵀMr with r = q − e_y and M = (1 − α)·G + α·diag(G·1), as the authors' code (581fde6) does.

    q is the softmax over the K number tokens alone, e_y the label's point mass, G_ij = exp(−½ (d_ij/σ)²), (K, K), and d
    the distance of two values, squashed from 1 to 9 (`squashed_cost`), as distances of digits are. α is by default
    1 / (2 · mean of G·1); 0 leaves the maximum mean discrepancy. The loss is a proper scoring rule and saturates: at
    the label 4, a sure 5 costs 1.4 and a sure 9 costs 2.6. The gradient is ∂L/∂z_j = q_j (h_j − q·h) with h = 2Mr.
    Raises ValueError unless sigma is positive and alpha 0 to 1.
    """
    check_positive("sigma", sigma)
    if alpha is not None and not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be 0 to 1, not {alpha}")
    distance_KK = squashed((rows.values_K.unsqueeze(1) - rows.values_K).abs(), 9.0)
    kernel_KK = (-0.5 * (distance_KK / sigma).square()).exp()
    degree_K = kernel_KK.sum(-1)
    share = 0.5 / degree_K.mean() if alpha is None else alpha
    residual_NK = rows.logits_NK.softmax(dim=-1) - F.one_hot(rows.tokens_N, len(degree_K))
    with exact(residual_NK.device):
        smooth_NK = (1 - share) * (residual_NK @ kernel_KK) + share * degree_K * residual_NK
    return (smooth_NK * residual_NK).sum(-1)


@of_number_rows
def dist2(rows: NumberRows, *, temperature: float = 1.0) -> Tensor:
    """Return KL(t ‖ q) = Σ_k t_k log(t_k / q_k) with the target t_k ∝ exp(−(v_k − y)²/τ), τ the temperature.

    q is the softmax over the K number tokens alone, as in the public code; in the paper it is over all tokens, which is
    `gaussian_cross_entropy` with sigma = √(τ/2) up to a constant. The loss is least at q = t, and so rises again where
    the model becomes sure of the label. The gradient is ∂L/∂z_j = q_j − t_j. The loss is inf if a number token with
    positive target mass has the logit -inf. Raises ValueError for a temperature that is not positive.
    """
    check_positive("temperature", temperature)
    distance_NK = (rows.values_K - rows.targets_N.unsqueeze(-1)).square()
    log_target_NK = (-distance_NK / temperature).log_softmax(dim=-1)
    target_NK, log_q_NK = log_target_NK.exp(), rows.logits_NK.log_softmax(dim=-1)
    # Far from the label the target underflows to 0, and 0 · -inf must be 0.
    each_NK = target_NK * (log_target_NK - log_q_NK.masked_fill(target_NK == 0, 0.0))
    return each_NK.sum(dim=-1)


def digit_entropy(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    point_id: int | None,
    factor: float = 0.01,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return (f/K) · w · Σ_k q_k b_k with b_k = softplus(z_k) − z_k [k = y], as the authors' code (68c3d4d) does.

    z are the logits of the K digits, q their softmax and f the factor. The weight w is 2, 4, 6, ... for units, tens,
    hundreds, ..., and 1.02^−2, 1.02^−3, ... for decimals. A number is a run of digits and points, the first of which is
    the decimal point; in a run that begins with a point, digits weigh as in an integer. A point has no loss, and
    all wrong digits cost alike. The gradient is ∂L/∂z_j = (f·w/K) q_j (sigmoid(z_j) − [j = y] + b_j − q·b).

    point_id is the token of the decimal point, or None if there is none. A digit whose logit is -inf adds nothing.
    Raises ValueError for number tokens that are not single digits, and a factor that is not positive.
    """
    check_digits(number_vocab)
    check_positive("factor", factor)
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    is_label_NK = F.one_hot(rows.tokens_N, len(rows.values_K)).bool()
    entropy_NK = torch.where(is_label_NK, F.softplus(-rows.logits_NK), F.softplus(rows.logits_NK))
    q_NK = rows.logits_NK.softmax(dim=-1)
    losses_N = (q_NK * entropy_NK.masked_fill(q_NK == 0, 0.0)).mean(dim=-1)
    digits = is_number(rows.labels, number_vocab, ignore_index)
    points = torch.zeros_like(digits) if point_id is None else rows.labels == point_id
    inside = digits | points
    leading = points & first_of(inside)
    begins_with_point = (before(leading, inside) > 0) | leading
    is_fraction = ((before(points, inside) > 0) | points) & ~begins_with_point
    integer = 2 * (after(inside & ~is_fraction, inside) + 1)
    weights = torch.where(is_fraction, torch.pow(1.02, -1.0 - before(is_fraction, inside)), integer)
    return reduce(factor * rows.select(weights).to(losses_N.dtype) * losses_N, rows, labels, reduction)


def ntil(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return emd + 0.2 rel + 0.2 mag of each row, the last dimension: the N of the authors' code (864abaa).

    emd is the mean over digits of 1.2^k Σ_j q_j |v_j − y|, q the softmax over the digits alone and k = 0 at the units.
    With A the number of the likeliest digits of a run and Y the number of its labels, rel is the mean over runs of
    |A − Y| / (max(A, Y) + 1), and mag the mean of log((max(A, Y) + 1) / (min(A, Y) + 1)). A point parts two runs. The
    gradient of A is straight-through, ∂A/∂z_j = 10^k s_j (v_j − Σ s v) / 0.1 with s = softmax(z / 0.1). The authors'
    Gumbel noise, and their total CE + 0.3 · N · CE/N (the ratio without a gradient), are not part of this function.
    "none" has the loss of a row at its last digit. The mean is over rows with a label; those without digits count as 0.
    Raises ValueError for number tokens that are not single digits.
    """
    check_digits(number_vocab)
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    digits = is_number(rows.labels, number_vocab, ignore_index)
    arguments = rows.labels, number_vocab, ignore_index
    row_losses = reduce(_parts(rows, digits), rows, rows.labels, "none").sum(-1, keepdim=True)
    losses_N = rows.select(row_losses.expand(digits.shape)).where(rows.select(last_label(*arguments)), 0.0)
    return reduce(losses_N, rows, labels, reduction, last_label(*arguments).sum())


def last_label(labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> Tensor:
    """Return the mask (..., T) of one position for each row with a label: its last digit, or else its last label."""
    digits = is_number(labels, number_vocab, ignore_index)
    chosen = digits.where(digits.any(-1, keepdim=True), labels != ignore_index)
    return chosen & (chosen.flip(-1).cumsum(-1).flip(-1) == 1)


def _parts(rows: NumberRows, digits: Tensor) -> Tensor:
    """Return what each digit adds to the loss of its row, (N,); the terms of a number are at its last digit."""
    dtype, last = rows.logits_NK.dtype, last_of(digits)
    place_N, from_first_N = (rows.select(count(digits, digits)).to(dtype) for count in (after, before))
    share_N, share_of_numbers_N = (
        rows.select((1 / mask.sum(-1, keepdim=True).clamp(min=1)).expand(digits.shape)).to(dtype)
        for mask in (digits, last)
    )
    distance_NK = (rows.values_K - rows.targets_N.unsqueeze(-1)).abs()
    emd_N = torch.pow(1.2, place_N) * (rows.logits_NK.softmax(dim=-1) * distance_NK).sum(-1)

    top_N1, at_N1 = rows.logits_NK.detach().max(-1, keepdim=True)
    soft_N = (((rows.logits_NK - top_N1) / _TEMPERATURE).softmax(dim=-1) * rows.values_K).sum(-1)
    digit_N = rows.values_K[at_N1.squeeze(-1)] + (soft_N - soft_N.detach())
    # In units of the first digit's place: both terms stay as they are, and nothing overflows.
    unit_N, number_N = torch.pow(10.0, -from_first_N.clamp(max=30)), rows.select(numbers_of(digits))
    none_N, counted_N = torch.zeros_like(unit_N), unit_N if rows.counts_N is None else unit_N * rows.counts_N
    error_N = none_N.index_add(0, number_N, counted_N * (digit_N - rows.targets_N))[number_N]
    label_N = none_N.index_add(0, number_N, counted_N * rows.targets_N)[number_N]
    relative_N = error_N.abs() / (label_N + error_N.clamp(min=0) + unit_N)
    magnitude_N = (error_N.abs() / (label_N + error_N.clamp(max=0) + unit_N)).log1p()
    of_numbers_N = (_RELATIVE * relative_N + _MAGNITUDE * magnitude_N).where(rows.select(last), 0.0)
    return share_N * emd_N + share_of_numbers_N * of_numbers_N


def emo(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary | None = None,
    *,
    embedding: Tensor,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return ½ (CE + CE/m · m), where the ratio has no gradient, the adaptive mode of the authors' code (14da9d5).

    m = 1 − Σ_{k ≠ y} p_k cos(E_y, E_k) with p the softmax over the whole vocabulary, and the gradient of Σ_k p_k C_yk,
    C_yk = 1 − cos(E_y, E_k). The value equals `cross_entropy`, in place of which it stands, and so tells nothing of
    m, which `transport_cost` returns. The gradient is ∂L/∂z_j = ½ (p_j − [j = y] + CE/m · p_j (C_yj − Σ_k p_k C_yk)).

    embedding is E (V, D), such as the weight of the output layer; it gets no gradient, and a row of zeros has the
    cosine 0 with all. number_vocab is not used. Raises ValueError for another number of embeddings than logits.
    """
    rows = label_rows(logits, labels, ignore_index)
    ce_N = F.cross_entropy(rows.logits_NV, rows.labels_N, ignore_index=ignore_index, reduction="none")
    counted_N = rows.labels_N if rows.counts_N is None else rows.labels_N.where(rows.counts_N, 0)
    cost_N = transport_cost(rows.logits_NV, counted_N, embedding)
    # In float32 or better, where the authors' guard does not underflow.
    return reduce(0.5 * (ce_N + (ce_N / (cost_N + 1e-10)).detach() * cost_N), rows, labels, reduction)


def transport_cost(logits_NV: Tensor, labels_N: Tensor, embedding: Tensor) -> Tensor:
    """Return the m of `emo` at each position, (N,)."""
    if embedding.shape[:1] != logits_NV.shape[-1:] or embedding.dim() != 2:
        raise ValueError(f"embedding must be (V, D) with V={logits_NV.shape[-1]}, not {tuple(embedding.shape)}")
    with torch.no_grad(), exact(logits_NV.device):
        unit_VD = F.normalize(embedding.detach().to(logits_NV.device, logits_NV.dtype), dim=-1)
        cost_NV = 1 - unit_VD[labels_N] @ unit_VD.t()
    p_NV = logits_NV.softmax(dim=-1)
    return (p_NV * cost_NV).sum(-1) + p_NV.detach().gather(-1, labels_N.unsqueeze(-1)).squeeze(-1)


register("smmd", smmd, distance=False)
register("dist2", dist2, distance=False)
register("digit_entropy", digit_entropy, distance=False, digits=True)
register("ntil", ntil, distance=False, digits=True, counted=last_label, one_weight=True)
register("emo", emo, is_base=True, distance=False)
