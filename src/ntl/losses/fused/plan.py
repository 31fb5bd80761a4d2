"""What one pass over the rows needs to know before it starts, for the implementations that compute loss and gradient
together.

With z the number-token logits of a row, p its softmax over the vocabulary and m its log-sum-exp, every loss here is
a · (m − target logit) + b · f(z) + b · (text cost + Σ_k p_k c_k), so that its gradient is a row of softmax times a
scale, less one entry at the label, plus a patch at the number tokens. The patch is found by autograd on z alone. Label
smoothing takes the same from every entry besides.

Shape suffixes: V vocabulary, K number tokens, N all positions, M those whose number-token logits are read.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntl.losses.fused.terms import Terms
from ntl.losses.rows import Index, number_index, rows_of, upcast
from ntl.losses.sums import Scales
from ntl.numbers import NumberVocabulary


@dataclass(frozen=True)
class NumberPositions:
    """Where number-token logits are read: ``index`` into labels, None for everywhere, then ``counts`` (M,) says which
    are number-labelled; ``flat`` (M,) are the same as positions 0 ... N - 1, ascending.
    """

    index: Index | None
    counts: Tensor | None
    flat: Tensor

    @classmethod
    def of(cls, labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> "NumberPositions":
        """Of labels (...), at least one-dimensional."""
        index, counts = number_index(labels, number_vocab, ignore_index)
        grid = torch.arange(labels.numel(), device=labels.device).view_as(labels)
        return cls(index, counts, grid.flatten() if index is None else grid[index])


@dataclass(frozen=True)
class NumberPart:
    """All that the number rows add.

    losses_M: the number terms' losses that the number-token logits give, without ``scales`` and weights
    soft_M: Σ_k g_k (z_k − top), the target logit of a soft target less the largest, ``top_M``: apart, as float32 holds
        three decimals of 30,000; and ``is_soft`` which rows have one; None without
    patch_MK: their gradient with respect to the number-token logits, with ``scales`` and weights; None without one
    excess_MK: c, beyond a text token's cost, 0 where there is no number; None without such a term
    text_M: a text token's cost, 0 where there is no number
    """

    losses_M: Tensor
    soft_M: Tensor | None
    is_soft_M: Tensor | None
    patch_MK: Tensor | None
    excess_MK: Tensor | None
    text_M: Tensor | None
    top_M: Tensor | None = None

    def rows(self, which: slice) -> "NumberPart":
        """Those of the M rows alone."""
        return replace(self, **{name: part[which] for name, part in vars(self).items() if part is not None})


@dataclass(frozen=True)
class FusedInputs:
    """Everything about N rows but their logits.

    labels: as they were given, (...) and at least one-dimensional
    labels_N: (N,), a token id at every row that counts, any valid one elsewhere
    counted_N: (N,) bool, None where all do
    logits_MK: the number-token logits at ``where``, detached, in the type the losses are computed in
    weights_N: (N,), what each row's losses are multiplied with, in the same type; None for 1
    """

    terms: Terms
    number_vocab: NumberVocabulary
    labels: Tensor
    labels_N: Tensor
    counted_N: Tensor | None
    where: NumberPositions
    logits_MK: Tensor
    weights_N: Tensor | None = None

    def part(self, scales: Scales, *, gradient: bool) -> NumberPart:
        """What the number rows add; ``scales`` () or, one a row, (M,)."""
        where, terms = self.where, self.terms
        if self.weights_N is not None:
            weights_M = self.weights_N[where.flat]
            scales = Scales(scales.base * weights_M, scales.number * weights_M)
        with torch.enable_grad():
            leaf_MK = self.logits_MK.detach().requires_grad_(gradient)
            rows = rows_of(leaf_MK, self.labels, self.number_vocab, where.index, where.counts)
            losses_M = leaf_MK.new_zeros(len(leaf_MK))
            for loss in terms.row_losses:
                losses_M = losses_M + loss(rows)
            if where.counts is not None:
                losses_M = losses_M.where(where.counts, 0.0)
            objective = (losses_M * scales.number).sum()
            soft_M = top_M = is_soft_M = None
            target_MK = terms.soft_target(rows)
            if target_MK is not None:
                # Far from the label the target underflows to 0, and 0 · -inf must be 0.
                top_M = leaf_MK.detach().amax(-1)
                top_M = top_M.masked_fill(top_M.isinf(), 0.0)
                less_MK = leaf_MK - top_M.unsqueeze(-1)
                soft_M = (target_MK * less_MK.masked_fill(target_MK == 0, 0.0)).sum(-1)
                is_soft_M = torch.ones_like(losses_M, dtype=torch.bool) if where.counts is None else where.counts
                objective = objective - (soft_M.where(is_soft_M, 0.0) * scales.base).sum()
            patch_MK = torch.autograd.grad(objective, leaf_MK)[0] if objective.requires_grad else None
        excess_MK = text_M = None
        for excess in terms.excesses:
            of_MK, text = excess(rows)
            text_M = text.expand(len(losses_M)) if text_M is None else text_M + text
            excess_MK = of_MK if excess_MK is None else excess_MK + of_MK
        if excess_MK is not None and text_M is not None and where.counts is not None:
            excess_MK = excess_MK * where.counts.unsqueeze(-1)
            text_M = text_M * where.counts
        return NumberPart(losses_M.detach(), soft_M, is_soft_M, patch_MK, excess_MK, text_M, top_M)


def inputs_from_logits(
    terms: Terms,
    logits_NV: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    ignore_index: int,
    weights: Tensor | None = None,
) -> FusedInputs:
    """Of detached logits; ``weights`` (...). IndexError, on a CPU, for a label that is no token."""
    counted_N = (labels != ignore_index).flatten()
    every = labels.device.type == "cpu" and bool(counted_N.all())
    labels_N = labels.flatten() if every else labels.flatten().where(counted_N, 0)
    check_labels(labels_N, logits_NV.shape[-1])
    where = NumberPositions.of(labels, number_vocab, ignore_index)
    ids = number_vocab.token_ids
    logits_MK = logits_NV.index_select(-1, ids) if where.index is None else logits_NV[where.flat.unsqueeze(-1), ids]
    counted = None if every else counted_N
    weights_N = None if weights is None else weights.flatten()
    return FusedInputs(terms, number_vocab, labels, labels_N, counted, where, upcast(logits_MK), weights_N)


def check_labels(labels_N: Tensor, width: int) -> None:
    """IndexError for a label outside 0 ... width - 1; on a CPU alone, as a GPU would have to be waited for."""
    if labels_N.device.type == "cpu" and labels_N.numel():
        low, high = labels_N.aminmax()
        if low < 0 or high >= width:
            raise IndexError(f"label {int(low if low < 0 else high)} is not a token id in [0, {width})")
