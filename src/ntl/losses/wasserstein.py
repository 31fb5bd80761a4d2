"""NTL-WAS: the expected cost of the predicted number token.

Shape suffixes: V vocabulary, K number tokens, N the number-labelled positions.
"""

from torch import Tensor

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
    """Σ_k q_k · cost[y, k], the paper's Eq. 4, with q = softmax over the K number tokens alone.

    This is the Wasserstein-1 distance between q and the label's point mass. Without a cost it is |v_y − v_k|, in value
    units. Not a proper scoring rule: under uncertainty its optimum is a point mass on the median.

    logits (..., V), labels (...), cost (K, K): finite, row = the label's token, column = the predicted token, both in
    the order of number_vocab.token_ids (see `euclidean_cost`, `squashed_cost`). The mean is over number labels;
    without any it is an exact 0 with a graph. A row of -inf number logits counts as uniform and has no gradient.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    return reduce(was_rows(rows, cost=cost), rows, labels, reduction)


def was_rows(rows: NumberRows, *, cost: Tensor | None = None) -> Tensor:
    """(N,), see `ntl_was`."""
    # A product and a sum, not a matrix product, which autocast would take in half precision.
    return (rows.logits_NK.softmax(dim=-1) * cost_rows(rows, cost)).sum(dim=-1)


def cost_rows(rows: NumberRows, cost: Tensor | None) -> Tensor:
    """(N, K): what each number token costs at each label. ValueError for a cost that is not (K, K)."""
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
    """Σ_k p_k · cost[y, k] with p = softmax over the whole vocabulary, where a text token costs text_cost.

    Unlike `ntl_was` it charges for mass on text at a number label. text_cost is 1.01 times the largest cost by default,
    which is what the ntloss package calls reweigh; below the largest cost, text is a cheap way out. Not in the paper.

    Shapes, cost and mean as in `ntl_was`.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    logits_NV = upcast(rows.at(logits if labels.dim() else logits.unsqueeze(0)))
    if rows.counts_N is not None:
        logits_NV = logits_NV.masked_fill(~rows.counts_N.unsqueeze(-1), 0.0)
    mass_NK = logits_NV.softmax(dim=-1).index_select(-1, number_vocab.token_ids)
    excess_NK, text = excess_rows(rows, cost=cost, text_cost=text_cost)
    return reduce(text + (mass_NK * excess_NK).sum(dim=-1), rows, labels, reduction)


def excess_rows(
    rows: NumberRows, *, cost: Tensor | None = None, text_cost: float | None = None
) -> tuple[Tensor, Tensor]:
    """(N, K) and (): what each number token costs beyond a text token, and what a text token costs."""
    if text_cost is not None:
        text = rows.values_K.new_full((), text_cost)
    else:
        largest = rows.values_K.max() - rows.values_K.min() if cost is None else cost.max()
        text = (largest * 1.01).to(rows.logits_NK.dtype)
    return cost_rows(rows, cost) - text, text
