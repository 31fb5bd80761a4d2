"""SMMD, the smooth maximum mean discrepancy (arXiv 2606.27731): a kernel score between distributions of values.

Shape suffixes: V vocabulary, K number tokens, N the number-labelled positions.
"""

import torch.nn.functional as F
from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.rows import Logits, Reduction, exact, number_rows, reduce
from ntl.losses.wasserstein import squashed
from ntl.numbers import NumberVocabulary


def smmd(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    sigma: float = 2.0,
    alpha: float | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return rᵀMr with r = q − e_y and M = (1 − α)·G + α·diag(G·1), as the authors' code (581fde6) does.

    q is the softmax over the K number tokens alone, e_y the label's point mass, G_ij = exp(−½ (d_ij/σ)²), (K, K), and d
    the distance of two values, squashed from 1 to 9 (`squashed_cost`), as those of digits are. α is by default
    1 / (2 · mean of G·1); 0 leaves the maximum mean discrepancy. The loss is a proper scoring rule and saturates: at
    the label 4, a sure 5 costs 1.4 and a sure 9 costs 2.6. The gradient is ∂L/∂z_j = q_j (h_j − q·h) with h = 2Mr.

    logits are (..., V), labels (...). The mean is over number labels. Raises ValueError unless sigma is positive.
    """
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, not {sigma}")
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    distance_KK = squashed((rows.values_K.unsqueeze(1) - rows.values_K).abs(), 9.0)
    kernel_KK = (-0.5 * (distance_KK / sigma).square()).exp()
    degree_K = kernel_KK.sum(-1)
    share = 0.5 / degree_K.mean() if alpha is None else alpha
    residual_NK = rows.logits_NK.softmax(dim=-1) - F.one_hot(rows.tokens_N, len(degree_K))
    with exact(residual_NK.device):
        smooth_NK = (1 - share) * (residual_NK @ kernel_KK) + share * degree_K * residual_NK
    return reduce((smooth_NK * residual_NK).sum(-1), rows, labels, reduction)


register("smmd", smmd, distance=False)
