"""Values that compare language models whatever loss they are trained with: NTL-WAS, digit accuracy, and digit MAE."""

import torch
from torch import Tensor

from ntl.losses.lp import mae_rows
from ntl.losses.rows import NumberRows, reduce
from ntl.losses.wasserstein import was_rows

DIAGNOSTICS = ("ntl_was", "digit_accuracy", "digit_mae")


@torch.no_grad()
def diagnostic_sums(rows: NumberRows, *, per_example: bool = False) -> Tensor:
    """Return the sums of ``DIAGNOSTICS`` over the number labels, and how many there are: (4,), or (B, 4) per example.

    With q the softmax over the number tokens alone, these are

    - ``ntl_was``: Σ_k q_k |v_k − y|, unweighted, in value units (`ntl_was`);
    - ``digit_accuracy``: whether the number token with the largest logit has the label's value. Other tokens are left
      out, since the number rows have no logits of them;
    - ``digit_mae``: |Σ_k q_k v_k − y|, the error of the expected digit in value units (`ntl_mae`).
    """
    right_N = rows.values_K[rows.logits_NK.argmax(dim=-1)] == rows.targets_N
    losses = (was_rows(rows), right_N.to(rows.logits_NK.dtype), mae_rows(rows), torch.ones_like(rows.targets_N))
    if per_example:
        return torch.stack([reduce(loss, rows, rows.labels, "none").sum(-1) for loss in losses], dim=-1)
    return torch.stack([reduce(loss, rows, rows.labels, "sum") for loss in losses])
