"""What every objective returns."""

from typing import NamedTuple

import torch


class Parts(NamedTuple):
    """The loss before any division. Scalars in training; one value an example, (B,), in evaluation.

    total = (ce_sum + aux_sum) / ce_count + weight x ntl_sum / ntl_count. ``aux_sum`` is a loss of the model's own, as a
    mixture of experts has one, already weighted and times this batch's ``ce_count``; 0 in evaluation. Where the
    loss has no number term, and so the weight 0, ``ntl_sum`` is a diagnostic without a graph: that of ``loss=ntl_was``.
    """

    ce_sum: torch.Tensor
    ce_count: torch.Tensor
    ntl_sum: torch.Tensor
    ntl_count: torch.Tensor
    aux_sum: torch.Tensor


class Joint(NamedTuple):
    """``parts`` without a graph, and in ``total`` the whole of them over given denominators, ``aux_sum`` left out."""

    parts: Parts
    total: torch.Tensor
