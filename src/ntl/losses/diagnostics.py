"""Values that compare language models whatever loss they are trained with: NTL-WAS, digit accuracy, and digit MAE.

Shape suffixes: B batch, T length, K number tokens, N the number-labelled positions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ntl.losses.rows import NumberRows

DIAGNOSTICS = ("ntl_was", "digit_accuracy", "digit_mae")


@torch.no_grad()
def diagnostic_sums(rows: NumberRows, *, per_example: bool = False) -> Tensor:
    """Return the sums of ``DIAGNOSTICS`` over the number labels, and how many there are: (4,).

    With ``per_example``, for labels (B, T), they are (B, 4). With q the softmax over the number tokens alone, they are

    - ``ntl_was``: Σ_k q_k |v_k − y|, unweighted, in value units (`ntl_was`);
    - ``digit_accuracy``: whether the number token with the largest logit has the label's value. Other tokens are left
      out, since the number rows have no logits of them;
    - ``digit_mae``: |Σ_k q_k v_k − y|, the error of the expected digit in value units (`ntl_mae`).
    """
    # One softmax for both distances: this takes half the time of calling the two losses.
    shares_NK = rows.logits_NK.softmax(dim=-1) * (rows.values_K - rows.targets_N.unsqueeze(-1))
    right_N = rows.values_K[rows.logits_NK.argmax(dim=-1)] == rows.targets_N
    found = (shares_NK.abs().sum(dim=-1), right_N, shares_NK.sum(dim=-1).abs(), torch.ones_like(rows.targets_N))
    found_N4 = torch.stack([each.to(shares_NK.dtype) for each in found], dim=-1)
    if rows.counts_N is not None:
        found_N4 = found_N4.where(rows.counts_N.unsqueeze(-1), 0.0)
    if not per_example:
        return found_N4.sum(dim=0)
    if rows.index is None:
        return found_N4.unflatten(0, rows.labels.shape).sum(dim=1)
    return found_N4.new_zeros(len(rows.labels), found_N4.shape[-1]).index_add_(0, rows.index[0], found_N4)


def diagnostic_means(sums: Sequence[float]) -> dict[str, float]:
    """Return the means of ``DIAGNOSTICS`` from `diagnostic_sums`; {} if there were no number labels."""
    *totals, count = sums or [0.0]
    return {name: total / count for name, total in zip(DIAGNOSTICS, totals, strict=True)} if count else {}
