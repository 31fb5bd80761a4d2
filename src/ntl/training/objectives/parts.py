"""What every objective returns."""

from typing import NamedTuple

import torch


class Parts(NamedTuple):
    """The loss before any division. Scalars in training; one value an example, (B,), in evaluation.

    total = (ce_sum + aux_sum) / ce_count + weight x ntl_sum / ntl_count. ``aux_sum`` is a loss of the model's own, as a
    mixture of experts has one, already weighted and times this batch's ``ce_count``; 0 in evaluation.

    ``total`` is the whole of it over the denominators that the objective was given, ``aux_sum`` left out; where it is
    there, it alone has a graph.
    """

    ce_sum: torch.Tensor
    ce_count: torch.Tensor
    ntl_sum: torch.Tensor
    ntl_count: torch.Tensor
    aux_sum: torch.Tensor
    total: torch.Tensor | None = None

    @property
    def sums(self) -> tuple[torch.Tensor, ...]:
        """All but ``total``: what adds up over batches."""
        return self[:5]
