"""The inputs of one pass over the rows, for the implementations that compute loss and gradient together.

With z the number-token logits of a row, p its softmax over the vocabulary and m its log-sum-exp, every loss here is
a · (m − target logit) + b · f(z) + b · (text cost + Σ_k p_k c_k). Its gradient is therefore the softmax times a scale,
minus one entry at the label, plus a patch at the number tokens. Autograd computes the patch from z alone. Label
smoothing subtracts the same amount from every entry.

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
    """The M positions whose number-token logits are read.

    Attributes:
        index: Their index into labels, or None if these are all positions.
        counts: (M,) bool, which of them are number-labelled; None if all are.
        flat: (M,), the same positions as numbers in 0 ... N - 1, ascending.
    """

    index: Index | None
    counts: Tensor | None
    flat: Tensor

    @classmethod
    def of(cls, labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> "NumberPositions":
        """Find the positions for labels (...), which must have at least one dimension."""
        index, counts = number_index(labels, number_vocab, ignore_index)
        grid = torch.arange(labels.numel(), device=labels.device).view_as(labels)
        return cls(index, counts, grid.flatten() if index is None else grid[index])


@dataclass(frozen=True)
class NumberPart:
    """The contribution of the number rows to the loss and its gradient. A part that no loss needs is None.

    Attributes:
        losses_M: The number losses that depend on number-token logits alone, without scales and weights.
        soft_M: Σ_k g_k (z_k − top), the target logit of a soft target less the largest logit. The two are kept apart
            because float32 has only three decimals at 30,000.
        is_soft_M: Which rows have a soft target.
        patch_MK: The gradient of these losses with respect to the number-token logits, with scales and weights.
        excess_MK: The costs c beyond a text token's cost, 0 for rows without a number.
        text_M: The cost of a text token, 0 for rows without a number.
        top_M: The largest number-token logit.
    """

    losses_M: Tensor
    soft_M: Tensor | None
    is_soft_M: Tensor | None
    patch_MK: Tensor | None
    excess_MK: Tensor | None
    text_M: Tensor | None
    top_M: Tensor | None = None

    def rows(self, selected: slice) -> "NumberPart":
        """Return the contribution of a slice of the M rows."""
        return replace(self, **{name: part[selected] for name, part in vars(self).items() if part is not None})


@dataclass(frozen=True)
class FusedInputs:
    """Everything about N rows except their logits.

    Attributes:
        labels: The labels in their own shape, (...), of at least one dimension.
        labels_N: (N,), a token id for every row that counts, any valid id for the others.
        counted_N: (N,) bool, which rows count; None if all do.
        logits_MK: The number-token logits at ``positions``, detached, in the type the losses are computed in.
        weights_N: (N,), the weight of each row's losses, in the same type; None for a weight of 1.
    """

    terms: Terms
    number_vocab: NumberVocabulary
    labels: Tensor
    labels_N: Tensor
    counted_N: Tensor | None
    positions: NumberPositions
    logits_MK: Tensor
    weights_N: Tensor | None = None

    def part(self, scales: Scales, *, gradient: bool) -> NumberPart:
        """Compute the contribution of the number rows; ``scales`` are () or, one per row, (M,)."""
        positions, terms = self.positions, self.terms
        if self.weights_N is not None:
            weights_M = self.weights_N[positions.flat]
            scales = Scales(scales.base * weights_M, scales.number * weights_M)
        with torch.enable_grad():
            leaf_MK = self.logits_MK.detach().requires_grad_(gradient)
            rows = rows_of(leaf_MK, self.labels, self.number_vocab, positions.index, positions.counts)
            losses_M = leaf_MK.new_zeros(len(leaf_MK))
            for loss in terms.row_losses:
                losses_M = losses_M + loss(rows)
            if positions.counts is not None:
                losses_M = losses_M.where(positions.counts, 0.0)
            objective = (losses_M * scales.number).sum()
            soft_M = top_M = is_soft_M = None
            target_MK = terms.soft_target(rows)
            if target_MK is not None:
                # Far from the label the target underflows to 0, and 0 · -inf must be 0.
                top_M = leaf_MK.detach().amax(-1)
                top_M = top_M.masked_fill(top_M.isinf(), 0.0)
                shifted_MK = leaf_MK - top_M.unsqueeze(-1)
                soft_M = (target_MK * shifted_MK.masked_fill(target_MK == 0, 0.0)).sum(-1)
                is_soft_M = positions.counts
                if is_soft_M is None:
                    is_soft_M = torch.ones_like(losses_M, dtype=torch.bool)
                objective = objective - (soft_M.where(is_soft_M, 0.0) * scales.base).sum()
            patch_MK = torch.autograd.grad(objective, leaf_MK)[0] if objective.requires_grad else None
        excess_MK = text_M = None
        for excess in terms.excesses:
            costs_MK, text = excess(rows)
            text_M = text.expand(len(losses_M)) if text_M is None else text_M + text
            excess_MK = costs_MK if excess_MK is None else excess_MK + costs_MK
        if excess_MK is not None and text_M is not None and positions.counts is not None:
            excess_MK = excess_MK * positions.counts.unsqueeze(-1)
            text_M = text_M * positions.counts
        return NumberPart(losses_M.detach(), soft_M, is_soft_M, patch_MK, excess_MK, text_M, top_M)


def inputs_from_logits(
    terms: Terms,
    logits_NV: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    ignore_index: int,
    weights: Tensor | None = None,
) -> FusedInputs:
    """Return the inputs for detached logits, labels (...) and weights (...).

    Raises IndexError, on a CPU, for a label that is not a token id.
    """
    counted_N = (labels != ignore_index).flatten()
    all_counted = labels.device.type == "cpu" and bool(counted_N.all())
    labels_N = labels.flatten() if all_counted else labels.flatten().where(counted_N, 0)
    check_labels(labels_N, logits_NV.shape[-1])
    positions = NumberPositions.of(labels, number_vocab, ignore_index)
    ids = number_vocab.token_ids
    if positions.index is None:
        logits_MK = logits_NV.index_select(-1, ids)
    else:
        logits_MK = logits_NV[positions.flat.unsqueeze(-1), ids]
    counted = None if all_counted else counted_N
    weights_N = None if weights is None else weights.flatten()
    return FusedInputs(terms, number_vocab, labels, labels_N, counted, positions, upcast(logits_MK), weights_N)


def check_labels(labels_N: Tensor, width: int) -> None:
    """Raise IndexError for a label outside 0 ... width - 1; on a GPU nothing is checked, as this would synchronise."""
    if labels_N.device.type == "cpu" and labels_N.numel():
        low, high = labels_N.aminmax()
        if low < 0 or high >= width:
            raise IndexError(f"label {int(low if low < 0 else high)} is not a token id in [0, {width})")
