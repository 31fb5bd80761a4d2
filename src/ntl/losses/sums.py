"""What losses give: both terms before division, and the total of the two, in its one formula.

total = (base sum + aux sum) / base count + weight × number sum / number count, the paper's Eq. 3.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

# What `JointLoss.flat` gives, in its order.
FLAT = ("ce_sum", "ce_count", "ntl_sum", "ntl_count", "aux_sum")


class SumCount(NamedTuple):
    """A loss before division, without a graph: what adds up over batches, steps and processes."""

    sum: Tensor
    count: Tensor


class JointLoss(NamedTuple):
    """``total`` has the graph; ``base`` (CE or GCE) and ``number`` are its parts for the log, the latter unweighted.

    Scalars, but (B,), one value an example, in evaluation by an objective. ``aux_sum`` is a loss of the model's own, as
    a mixture of experts has one, already weighted and times this batch's ``base.count``; 0 where there is none.
    """

    total: Tensor
    base: SumCount
    number: SumCount
    aux_sum: Tensor

    @classmethod
    def of(
        cls,
        base: SumCount,
        number: SumCount,
        aux_sum: Tensor,
        weight: float,
        counts: Tensor | tuple[Tensor, Tensor] | None = None,
    ) -> Self:
        """With the total of sums that have their graph, over ``counts``, by default those of the terms themselves."""
        over, number_over = (base.count, number.count) if counts is None else counts
        total = mean(base.sum + aux_sum, over)
        total = total + weight * mean(number.sum, number_over)
        base, number = (SumCount(term.sum.detach(), term.count) for term in (base, number))
        return cls(total, base, number, aux_sum.detach())

    @property
    def flat(self) -> tuple[Tensor, ...]:
        """The sums and counts alone, named by ``FLAT``."""
        return (*self.base, *self.number, self.aux_sum)


@dataclass(frozen=True)
class Scales:
    """The same formula as the coefficients of the two sums, () each, for a gradient that is written before they are
    known. A product with 1 / count is not the quotient in the last digit, so that `JointLoss.of` stays beside it.
    """

    base: Tensor
    number: Tensor

    def total(self, base_sum: Tensor, number_sum: Tensor) -> Tensor:
        """base · Σ base losses + number · Σ number losses."""
        return self.base * base_sum + self.number * number_sum


def mean(total: Tensor, count: Tensor) -> Tensor:
    """total / count, and 0 where nothing was counted."""
    return total / count.clamp(min=1)


def scales_of(weight: float, logits: Tensor, denominators: tuple[Tensor, Tensor], reduction: str) -> Scales:
    """In the type that the losses of these logits are computed in; 1 and ``weight`` but for the reduction "mean"."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    one = torch.ones((), dtype=dtype, device=logits.device)
    if reduction != "mean":
        return Scales(one, one * weight)
    counts = (count.to(logits.device) for count in denominators)
    base, number = (count.where(count > 0, 1).to(dtype) for count in counts)  # a sum of weights may be below 1
    return Scales(one / base, weight / number)
