"""Losses between two distributions over number values, computed from their cumulative distribution functions.

With the number tokens in ascending order of value, F_j and G_j are the predicted and the target mass on the first j
tokens, and w_j = v_(j+1) − v_(j) is the gap that follows. The gap between tokens of equal value is 0, so that only
their joint mass counts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.losses.categorical import gaussian_target
from ntl.losses.registry import register
from ntl.losses.rows import NumberRows, of_number_rows


@of_number_rows
def ntl_was_cdf(rows: NumberRows, *, target: Tensor | None = None, sigma: float | None = None) -> Tensor:
    """Return Σ_j |F_j − G_j| · w_j, the Wasserstein-1 distance of the paper's Eq. 5, in value units.

    The prediction is the softmax over the K number tokens alone. The target is one of three: by default the label's
    point mass, for which the loss equals `ntl_was` on any vocabulary; with sigma, a Gaussian of this width around the
    label (`gaussian_target`), which the paper combines with `gaussian_cross_entropy`; or the given target. The original
    leaves out w_j, which makes no difference if sorted values are 1 apart, as digits are.

    target is (..., K): rows that sum to 1, in the order of number_vocab.token_ids, read at number labels only.
    """
    if target is not None and sigma is not None:
        raise ValueError("give a target or a sigma, not both")
    if target is not None:
        target_NK = _target_rows(target, rows)
    elif sigma is not None:
        target_NK = gaussian_target(rows.targets_N, rows.values_K, sigma)
    else:
        target_NK = F.one_hot(rows.tokens_N, len(rows.values_K)).to(rows.logits_NK.dtype)
    difference_NJ, gaps_J = _cdf_difference(rows, target_NK)
    return (difference_NJ.abs() * gaps_J).sum(dim=-1)


@of_number_rows
def ntl_crps(rows: NumberRows) -> Tensor:
    """Return Σ_j (F_j − G_j)² · w_j, the continuous ranked probability score (Cramér distance), in value units.

    The prediction q is the softmax over the K number tokens alone, the target the label's point mass. Not in the paper.
    The loss equals NTL-WAS less half the expected distance between two draws of q. It is a proper scoring rule: its
    expectation is minimal at the true distribution.
    """
    return crps_rows(rows)


def crps_rows(rows: NumberRows) -> Tensor:
    """Return the loss of each row, (N,); see `ntl_crps`."""
    difference_NJ, gaps_J = _cdf_difference(rows, F.one_hot(rows.tokens_N, len(rows.values_K)))
    return (difference_NJ.square() * gaps_J).sum(dim=-1)


def _cdf_difference(rows: NumberRows, target_NK: Tensor) -> tuple[Tensor, Tensor]:
    """Return F − G (N, J) at each of the J = K − 1 gaps, and the gaps (J,).

    F − G is the sum of q − g below a gap, and minus its sum above the gap. The two differ by rounding, but a gap of a
    million turns this rounding into a loss of its own. The sum is therefore taken on the side with less total mass.
    """
    sorted_K, order_K = rows.values_K.sort()
    q_NK = rows.logits_NK.softmax(dim=-1)
    difference_NK = (q_NK - target_NK)[:, order_K]
    below_NJ = difference_NK.cumsum(dim=-1)[:, :-1]
    above_NJ = difference_NK.flip(-1).cumsum(dim=-1).flip(-1)[:, 1:]
    mass_NJ = (q_NK + target_NK)[:, order_K].detach().cumsum(dim=-1)[:, :-1]
    # For digits the rounding error is below 1e-6, and the sum from below keeps earlier results bit-identical.
    is_above_NJ = (mass_NJ > 1) & (sorted_K[-1] - sorted_K[0] > 9)
    return torch.where(is_above_NJ, -above_NJ, below_NJ), sorted_K.diff()


def _target_rows(target: Tensor, rows: NumberRows) -> Tensor:
    shape = (*rows.labels.shape, len(rows.values_K))
    if target.dim() == 1 and rows.labels.shape == (1,):  # scalar labels, to which a dimension was added
        target = target.unsqueeze(0)
    if target.shape != shape:
        raise ValueError(f"target must be labels' shape + (K,), {shape}, not {tuple(target.shape)}")
    return rows.select(target).to(rows.logits_NK.dtype)


register("was_cdf", ntl_was_cdf)
register("crps", ntl_crps)
