"""The inputs of one pass over the rows, for the implementations that compute loss and gradient together.

With z the number-token logits of a row, p its softmax over the vocabulary and m its log-sum-exp, every loss here is
a · (m − target logit) + b · f(z) + b · (text cost + Σ_k p_k c_k). Its gradient is therefore the softmax times a scale,
minus one entry at the label, plus a patch at the number tokens. Autograd computes the patch from z alone. Label
smoothing subtracts the same amount from every entry.

Shape suffixes: V vocabulary, K number tokens, N all positions, M those whose number-token logits are read.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ntl.losses.fused.chunks import NumberPart, RowBatch
from ntl.losses.fused.terms import Terms
from ntl.losses.rows import Index, checked_weights, count_labels, number_index, rows_of, upcast
from ntl.losses.sums import JointLoss, Scales, SumCount
from ntl.numbers import NumberVocabulary

Counts = tuple[Tensor | float | None, Tensor | float | None]


class NumberPositions(NamedTuple):
    """The M positions whose number-token logits are read.

    Attributes:
        index: Their index into labels, or None if these are all positions.
        counts: (M,) bool, which of them are number-labelled; None if all are.
        flat: (M,), the same positions as numbers in 0 ... N - 1, ascending.
    """

    index: Index | None
    counts: Tensor | None
    flat: Tensor


@dataclass(frozen=True)
class Targets:
    """The labels and the losses to compute for them: all that a joint loss needs except logits.

    Attributes:
        labels: (...), of at least one dimension.
        weights: (...), the weight of each label's losses, 0 at ignored labels; None for a weight of 1.
        counts: The denominators of the two sums, () each.
        scales: The coefficients of the two sums in the total.
    """

    terms: Terms
    labels: Tensor
    number_vocab: NumberVocabulary
    ignore_index: int
    weights: Tensor | None
    counts: tuple[Tensor, Tensor]
    scales: Scales

    @classmethod
    def of(
        cls,
        terms: Terms,
        inputs: Tensor,
        labels: Tensor,
        number_vocab: NumberVocabulary,
        ignore_index: int,
        reduction: str,
        counts: Counts,
        loss_weights: Tensor | None,
    ) -> Self:
        """Check the weights and compute the denominators and scales; ``inputs`` are logits or hidden states.

        Denominators that are not given in ``counts`` are the counts of these labels, or with weights the sums of these.
        """
        weights = checked_weights(loss_weights, inputs, labels, ignore_index)
        labels = labels.long() if labels.dim() else labels.long().unsqueeze(0)
        base, number = counts
        if base is None:
            base = count_labels(labels, ignore_index=ignore_index) if weights is None else weights.sum()
        if number is None:
            counted = terms.counted(labels, number_vocab, ignore_index)
            number = counted.sum() if weights is None else (weights.view_as(labels) * counted).sum()
        denominators = torch.as_tensor(base), torch.as_tensor(number)
        dtype = torch.promote_types(inputs.dtype, torch.float32)
        one = torch.ones((), dtype=dtype, device=inputs.device)
        scales = Scales(one, one * terms.weight)
        if reduction == "mean":
            on_device = (count.to(inputs.device) for count in denominators)
            # Not clamp(min=1): a sum of weights may be below 1.
            base, number = (count.where(count > 0, 1).to(dtype) for count in on_device)
            scales = Scales(one / base, terms.weight / number)
        return cls(terms, labels, number_vocab, ignore_index, weights, denominators, scales)

    def joint(self, total: Tensor, base: Tensor, number: Tensor) -> JointLoss:
        """Return the result for a total with its graph and the detached sums of both terms."""
        return JointLoss(
            total, SumCount(base, self.counts[0]), SumCount(number, self.counts[1]), torch.zeros_like(base)
        )

    def rows(
        self,
        labels_N: Tensor,
        counted_N: Tensor | None,
        weights_N: Tensor | None,
        positions: NumberPositions,
        logits_MK: Tensor,
        gradient: bool,
    ) -> RowBatch:
        """Return the inputs of a pass; see `RowBatch` for the arguments."""
        weights_M = None if weights_N is None else weights_N[positions.flat]
        part = self._number_part(positions, logits_MK, weights_M, gradient)
        ids, smoothing = self.number_vocab.token_ids, self.terms.smoothing
        return RowBatch(labels_N, counted_N, positions.flat, ids, logits_MK, part, self.scales, smoothing, weights_N)

    def _number_part(
        self, positions: NumberPositions, logits_MK: Tensor, weights_M: Tensor | None, gradient: bool
    ) -> NumberPart:
        terms, scales = self.terms, self.scales
        if weights_M is not None:
            scales = Scales(scales.base * weights_M, scales.number * weights_M)
        with torch.enable_grad():
            leaf_MK = logits_MK.detach().requires_grad_(gradient)
            rows = rows_of(leaf_MK, self.labels, self.number_vocab, positions.index, positions.counts)
            losses_M = leaf_MK.new_zeros(len(leaf_MK))
            for loss in terms.parts("rows"):
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
        for excess in terms.parts("excess"):
            costs_MK, text = excess(rows)
            text_M = text.expand(len(losses_M)) if text_M is None else text_M + text
            excess_MK = costs_MK if excess_MK is None else excess_MK + costs_MK
        if excess_MK is not None and text_M is not None and positions.counts is not None:
            excess_MK = excess_MK * positions.counts.unsqueeze(-1)
            text_M = text_M * positions.counts
        return NumberPart(losses_M.detach(), soft_M, is_soft_M, patch_MK, excess_MK, text_M, top_M)


def rows_of_logits(targets: Targets, logits_NV: Tensor, *, gradient: bool) -> RowBatch:
    """Return the inputs of a pass over detached logits.

    Raises IndexError, on a CPU, for a label that is not a token id.
    """
    labels, vocab, ignore_index = targets.labels, targets.number_vocab, targets.ignore_index
    counted_N = (labels != ignore_index).flatten()
    all_counted = labels.device.type == "cpu" and bool(counted_N.all())
    labels_N = labels.flatten() if all_counted else labels.flatten().where(counted_N, 0)
    check_labels(labels_N, logits_NV.shape[-1])
    index, counts = number_index(labels, vocab, ignore_index)
    grid = torch.arange(labels.numel(), device=labels.device).view_as(labels)
    if index is None:
        flat, logits_MK = grid.flatten(), logits_NV.index_select(-1, vocab.token_ids)
    else:
        flat = grid[index]
        logits_MK = logits_NV[flat.unsqueeze(-1), vocab.token_ids]
    weights_N = None if targets.weights is None else targets.weights.flatten()
    positions, counted = NumberPositions(index, counts, flat), None if all_counted else counted_N
    return targets.rows(labels_N, counted, weights_N, positions, upcast(logits_MK), gradient)


def check_labels(labels_N: Tensor, width: int) -> None:
    """Raise IndexError for a label outside 0 ... width - 1; on a GPU nothing is checked, as this would synchronise."""
    if labels_N.device.type == "cpu" and labels_N.numel():
        low, high = labels_N.aminmax()
        if low < 0 or high >= width:
            raise IndexError(f"label {int(low if low < 0 else high)} is not a token id in [0, {width})")
