"""The two loss terms before division, and the one formula that combines them into the total loss, `total_loss`."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from torch import Tensor

# The names of the first entries of `JointLoss.flat`, in order. The sums and counts of ``heads`` follow.
FLAT = ("ce_sum", "ce_count", "ntl_sum", "ntl_count", "aux_sum")


class SumCount(NamedTuple):
    """A loss before division, detached; sums and counts add up over batches, steps and processes."""

    sum: Tensor
    count: Tensor


# The terms of a head in `JointLoss.heads`, in order.
HEAD = ("ce", "ntl", "accuracy")


class JointLoss(NamedTuple):
    """The total loss with its autograd graph, and its terms, detached, for logging.

    All are scalars, except in evaluation, where an objective returns one value per example, (B,).

    Attributes:
        total: The loss to minimise.
        base: Cross-entropy, or Gaussian cross-entropy.
        number: The number loss, unweighted.
        aux_sum: The model's own auxiliary loss, such as the router loss of a mixture of experts, already weighted and
            multiplied by this batch's ``base.count``; 0 for a model without one.
        heads: The terms ``HEAD`` of each head that predicts several tokens ahead; ``base`` and ``number`` are those of
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
        """Compute the total from sums with a graph; ``counts`` are its denominators, by default those of the terms."""
        base_count, number_count = (base.count, number.count) if counts is None else counts
        total = total_loss(base.sum + aux_sum, number.sum, base_count, number_count, weight)
        base, number = (SumCount(term.sum.detach(), term.count) for term in (base, number))
        return cls(total, base, number, aux_sum.detach())

    @property
    def flat(self) -> tuple[Tensor, ...]:
        """The detached sums and counts, in the order of ``FLAT``, then those of ``heads``."""
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
