"""EMO, earth mover distance optimisation (arXiv 2310.04691): a transport cost between embeddings, over all tokens.

Shape suffixes: V vocabulary, D size of an embedding, N the labelled positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.rows import Reduction, exact, label_rows, reduce
from ntl.numbers import NumberVocabulary


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
    C_yk = 1 − cos(E_y, E_k). The value is that of `cross_entropy`, in place of which it stands, and so tells nothing of
    m, which `transport_cost` returns. The gradient is ∂L/∂z_j = ½ (p_j − [j = y] + CE/m · p_j (C_yj − Σ_k p_k C_yk)).

    logits are (..., V), labels (...). embedding is E (V, D), such as the weight of the output layer; it gets no
    gradient, and a row of zeros has the cosine 0 with all. number_vocab is not used. The mean is over all labelled
    tokens. Raises ValueError for another number of embeddings than logits.
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


register("emo", emo, is_base=True, distance=False)
