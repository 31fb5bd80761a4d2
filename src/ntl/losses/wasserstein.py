"""NTL-WAS: the expected cost of the predicted number token, and matrices of such costs."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ntl.losses.registry import register
from ntl.losses.rows import Logits, NumberRows, Reduction, check_positive, number_rows, of_number_rows, reduce, upcast
from ntl.numbers import NumberVocabulary


@of_number_rows
def ntl_was(rows: NumberRows, *, cost: Tensor | None = None) -> Tensor:
    """Return Σ_k q_k · cost[y, k], the paper's Eq. 4, with q the softmax over the K number tokens alone.

    This is the Wasserstein-1 distance between q and the label's point mass. The default cost is |v_y − v_k|, in value
    units. The loss is not a proper scoring rule: under uncertainty its optimum is a point mass on the median.
    cost is (K, K): finite, with a row for each label token and a column for each predicted token, both in the order of
    number_vocab.token_ids (see `euclidean_cost`, `squashed_cost`).
    """
    # Not a matrix product, which autocast would compute in half precision.
    return (rows.logits_NK.softmax(dim=-1) * _costs(rows, cost)).sum(dim=-1)


def _costs(rows: NumberRows, cost: Tensor | None) -> Tensor:
    """Return the cost of each number token at each label, (N, K). Raises ValueError for a cost that is not (K, K)."""
    if cost is None:
        return (rows.values_K - rows.targets_N.unsqueeze(-1)).abs()
    if cost.shape != (len(rows.values_K),) * 2:
        raise ValueError(f"cost must be (K, K) with K={len(rows.values_K)} number tokens, not {tuple(cost.shape)}")
    return cost[rows.tokens_N].to(rows.logits_NK.dtype)


def ntl_was_vocab(
    logits: Logits,
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
    lower the loss. Not in the paper. cost is as in `ntl_was`; a row whose number logits are all -inf costs text_cost.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    log_p_NK = rows.log_p_NK
    if log_p_NK is None:
        assert isinstance(logits, Tensor)
        logits_NV = upcast(rows.select(logits if labels.dim() else logits.unsqueeze(0)))
        if rows.counts_N is not None:
            logits_NV = logits_NV.masked_fill(~rows.counts_N.unsqueeze(-1), 0.0)
        log_p_NK = logits_NV.log_softmax(dim=-1).index_select(-1, number_vocab.token_ids)
    if text_cost is None:
        largest = rows.values_K.max() - rows.values_K.min() if cost is None else cost.max()
        text = (largest * 1.01).to(rows.logits_NK.dtype)
    else:
        check_positive("text_cost", text_cost)
        text = rows.values_K.new_full((), text_cost)
    losses_N = text + (log_p_NK.exp() * (_costs(rows, cost) - text)).sum(dim=-1)
    return reduce(losses_N, rows, labels, reduction)


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
    return squashed(euclidean_cost(values), factor)


def squashed(distance_KK: Tensor, factor: float) -> Tensor:
    """Return `squashed_cost` of distances (K, K)."""
    differs_KK = distance_KK > 0
    nearest, farthest = distance_KK.where(differs_KK, math.inf).amin(), distance_KK.amax()
    span = (farthest - nearest).clamp(min=torch.finfo(distance_KK.dtype).tiny)
    return torch.where(differs_KK, 1 + (distance_KK - nearest) * (factor - 1) / span, 0.0)


register("was", ntl_was)
register("was_vocab", ntl_was_vocab, whole=True)
