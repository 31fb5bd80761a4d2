"""NTL-WAS: the expected cost of the predicted number token, and matrices of such costs.

Shape suffixes: V vocabulary, K number tokens, N the number-labelled positions.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.rows import NumberRows, Reduction, number_rows, reduce, upcast
from ntl.numbers import NumberVocabulary


def ntl_was(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    cost: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return Σ_k q_k · cost[y, k], the paper's Eq. 4, with q the softmax over the K number tokens alone.

    This is the Wasserstein-1 distance between q and the label's point mass. The default cost is |v_y − v_k|, in value
    units. The loss is not a proper scoring rule: under uncertainty its optimum is a point mass on the median.

    logits are (..., V), labels (...), cost (K, K): finite, with a row for each label token and a column for each
    predicted token, both in the order of number_vocab.token_ids (see `euclidean_cost`, `squashed_cost`). The mean is
    over number labels; without any it is an exact 0 that still has a graph. A row whose number logits are all -inf
    counts as uniform and has no gradient.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    return reduce(was_rows(rows, cost=cost), rows, labels, reduction)


def was_rows(rows: NumberRows, *, cost: Tensor | None = None) -> Tensor:
    """Return the loss of each row, (N,); see `ntl_was`."""
    # Not a matrix product, which autocast would compute in half precision.
    return (rows.logits_NK.softmax(dim=-1) * cost_rows(rows, cost)).sum(dim=-1)


def cost_rows(rows: NumberRows, cost: Tensor | None) -> Tensor:
    """Return the cost of each number token at each label, (N, K). Raises ValueError for a cost that is not (K, K)."""
    if cost is None:
        return (rows.values_K - rows.targets_N.unsqueeze(-1)).abs()
    if cost.shape != (len(rows.values_K),) * 2:
        raise ValueError(f"cost must be (K, K) with K={len(rows.values_K)} number tokens, not {tuple(cost.shape)}")
    return cost[rows.tokens_N].to(rows.logits_NK.dtype)


def ntl_was_vocab(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    cost: Tensor | None = None,
    text_cost: float | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return Σ_k p_k · cost[y, k] with p the softmax over the whole vocabulary, where a text token costs text_cost.

    Unlike `ntl_was` it penalises mass on text tokens at a number label. text_cost is 1.01 times the largest cost by
    default, which the ntloss package calls reweigh. With a text_cost below the largest cost, moving mass to text can
    lower the loss. Not in the paper.

    Shapes, cost and mean are those of `ntl_was`.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    logits_NV = upcast(rows.select(logits if labels.dim() else logits.unsqueeze(0)))
    if rows.counts_N is not None:
        logits_NV = logits_NV.masked_fill(~rows.counts_N.unsqueeze(-1), 0.0)
    mass_NK = logits_NV.softmax(dim=-1).index_select(-1, number_vocab.token_ids)
    excess_NK, text = excess_rows(rows, cost=cost, text_cost=text_cost)
    return reduce(text + (mass_NK * excess_NK).sum(dim=-1), rows, labels, reduction)


def excess_rows(
    rows: NumberRows, *, cost: Tensor | None = None, text_cost: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return the cost of each number token less that of a text token, (N, K), and the cost of a text token, ()."""
    if text_cost is not None:
        text = rows.values_K.new_full((), text_cost)
    else:
        largest = rows.values_K.max() - rows.values_K.min() if cost is None else cost.max()
        text = (largest * 1.01).to(rows.logits_NK.dtype)
    return cost_rows(rows, cost) - text, text


def euclidean_cost(values: Tensor | Sequence[float]) -> Tensor:
    """Return |v_i − v_j| (K, K) for values (K,): the cost of the paper's Eq. 4, and the default of `ntl_was`.

    Raises ValueError for values that are not (K,) or not finite.
    """
    values_K = torch.as_tensor(values)
    if values_K.dim() != 1 or not values_K.isfinite().all():
        raise ValueError("values must be (K,) and finite: pass number_vocab.token_values")
    values_K = values_K.to(torch.promote_types(values_K.dtype, torch.float32))
    return (values_K.unsqueeze(1) - values_K.unsqueeze(0)).abs()


def squashed_cost(values: Tensor | Sequence[float], factor: float) -> Tensor:
    """Return 1 + (D − d_min)(factor − 1)/(d_max − d_min) for D = |v_i − v_j| > 0, and 0 for D = 0, as (K, K).

    Of all pairs of values (K,) that differ, the nearest (d_min) costs 1 and the farthest (d_max) costs `factor`; tokens
    of equal value cost nothing. The unsquashed costs of digits have the factor 9; the paper's appendix tries 3. If all
    values that differ are equally far apart, each costs 1.

    Raises ValueError for a factor that is not above 1 and finite.
    """
    if not 1 < factor < math.inf:
        raise ValueError(f"the squash factor must be above 1 and finite, not {factor}")
    distance_KK = euclidean_cost(values)
    differs_KK = distance_KK > 0
    if not differs_KK.any():
        return distance_KK
    nearest, farthest = distance_KK[differs_KK].min(), distance_KK.max()
    span = (farthest - nearest).clamp(min=torch.finfo(distance_KK.dtype).tiny)
    return torch.where(differs_KK, 1 + (distance_KK - nearest) * (factor - 1) / span, 0.0)


register("was", ntl_was, rows=was_rows)
register("was_vocab", ntl_was_vocab, excess=excess_rows)
