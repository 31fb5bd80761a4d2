"""The loss terms before division, the formula that combines them, `total_loss`, and values that compare models."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ntl.losses.rows import NumberRows

# The names of the first entries of `JointLoss.flat`, in order. The sums and counts of ``heads`` follow.
FLAT = ("ce_sum", "ce_count", "ntl_sum", "ntl_count", "aux_sum")


class SumCount(NamedTuple):
    """A loss before division, detached; sums and counts add up over batches, steps and processes."""

    sum: Tensor
    count: Tensor


# The terms of a head in `JointLoss.heads`, in order.
HEAD = ("ce", "ntl", "accuracy")
# What compares language models whatever loss they are trained with.
DIAGNOSTICS = ("ntl_was", "digit_accuracy", "digit_mae")


class JointLoss(NamedTuple):
    """The total loss with its autograd graph, and its terms, detached, for logging.

    All are scalars, except in evaluation, where an objective returns one value per example, (B,).

    Attributes:
        total: The loss to minimise.
        base: Cross-entropy, or Gaussian cross-entropy.
        number: The number loss, unweighted.
        aux_sum: The model's own auxiliary loss, such as the router loss of a mixture of experts, already weighted and
            multiplied by this batch's ``base.count``; 0 for a model without one.
        heads: The terms ``HEAD`` of each head that predicts several tokens ahead; ``base`` and ``number`` are of
            the first. The accuracy counts correct labels, in evaluation alone.
    """

    total: Tensor
    base: SumCount
    number: SumCount
    aux_sum: Tensor
    heads: tuple[tuple[SumCount, ...], ...] = ()

    @classmethod
    def of(
        cls,
        base: SumCount,
        number: SumCount,
        aux_sum: Tensor,
        weight: float,
        counts: Tensor | tuple[Tensor, Tensor] | None = None,
    ) -> Self:
        """Compute the total from sums with a graph; ``counts`` are its denominators, by default the terms' own."""
        base_count, number_count = (base.count, number.count) if counts is None else counts
        total = total_loss(base.sum + aux_sum, number.sum, base_count, number_count, weight)
        base, number = (SumCount(term.sum.detach(), term.count) for term in (base, number))
        return cls(total, base, number, aux_sum.detach())

    @property
    def flat(self) -> tuple[Tensor, ...]:
        """The detached sums and counts, in the order of ``FLAT``, then the terms of ``heads``."""
        of_heads = [value for head in self.heads for term in head for value in term]
        return (*self.base, *self.number, self.aux_sum, *of_heads)


def total_loss(base_sum: Tensor, number_sum: Tensor, base_count: Tensor, number_count: Tensor, weight: float) -> Tensor:
    """Return base sum / base count + weight × number sum / number count, the paper's Eq. 3."""
    return mean(base_sum, base_count) + weight * mean(number_sum, number_count)


def mean(total: Tensor, count: Tensor) -> Tensor:
    """Return total / count, with 1 in place of a count of 0. A count that is a sum of weights may be below 1."""
    return total / count.where(count > 0, 1)


def means(parts: Sequence[float]) -> dict[str, float]:
    """Return the means ``ce`` and ``ntl`` of sums and counts in the order of `JointLoss.flat`.

    A term of count 0 is left out: a mean of 0 would read as perfect. With several heads, ``ce/head2`` and so on, and
    the accuracies ``accuracy/head1`` and so on, are means as well.
    """
    ce_sum, ce_count, ntl_sum, ntl_count, _ = parts[: len(FLAT)]
    named = {"ce": (ce_sum, ce_count), "ntl": (ntl_sum, ntl_count)}
    of_heads = list(zip(parts[len(FLAT) :: 2], parts[len(FLAT) + 1 :: 2], strict=True))
    for index, term in enumerate(of_heads):
        head, name = index // len(HEAD) + 1, HEAD[index % len(HEAD)]
        if head > 1 or name not in named:
            named[f"{name}/head{head}"] = term
    return {name: total / count for name, (total, count) in named.items() if count}


@torch.no_grad()
def diagnostic_sums(rows: NumberRows, *, per_example: bool = False) -> Tensor:
    """Return the sums of ``DIAGNOSTICS`` over the number labels, and how many there are: (4,).

    With ``per_example``, for labels (B, T), they are (B, 4). With q the softmax over the number tokens alone, they are

    - ``ntl_was``: Σ_k q_k |v_k − y|, unweighted, in value units (`ntl_was`);
    - ``digit_accuracy``: whether the number token with the largest logit has the label's value, whatever text has;
    - ``digit_mae``: |Σ_k q_k v_k − y|, the error of the expected digit in value units (`ntl_mae`).
    """
    # One softmax for both distances: this takes half the time of calling the two losses.
    shares_NK = rows.logits_NK.softmax(dim=-1) * (rows.values_K - rows.targets_N.unsqueeze(-1))
    right_N = rows.values_K[rows.logits_NK.argmax(dim=-1)] == rows.targets_N
    columns = (shares_NK.abs().sum(dim=-1), right_N, shares_NK.sum(dim=-1).abs(), torch.ones_like(rows.targets_N))
    values_N4 = torch.stack([column.to(shares_NK.dtype) for column in columns], dim=-1)
    if rows.counts_N is not None:
        values_N4 = values_N4.where(rows.counts_N.unsqueeze(-1), 0.0)
    if not per_example:
        return values_N4.sum(dim=0)
    if rows.index is None:
        return values_N4.unflatten(0, rows.labels.shape).sum(dim=1)
    return values_N4.new_zeros(len(rows.labels), values_N4.shape[-1]).index_add_(0, rows.index[0], values_N4)


def diagnostic_means(sums: Sequence[float]) -> dict[str, float]:
    """Return the means of ``DIAGNOSTICS`` from `diagnostic_sums`; {} if there were no number labels."""
    *totals, count = sums or [0.0]
    return {name: total / count for name, total in zip(DIAGNOSTICS, totals, strict=True)} if count else {}
