"""Cost matrices for `ntl_was`: cost[i, j] is the cost of predicting number token j where token i is right.

Shape suffixes: K number tokens.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def euclidean_cost(values: Tensor | Sequence[float]) -> Tensor:
    """|v_i − v_j| (K, K) for values (K,): the cost of the paper's Eq. 4, and what `ntl_was` uses when given none.

    Raises ValueError for values that are not (K,) or not finite.
    """
    values_K = torch.as_tensor(values)
    if values_K.dim() != 1 or not values_K.isfinite().all():
        raise ValueError("values must be (K,) and finite: pass number_vocab.token_values")
    values_K = values_K.to(torch.promote_types(values_K.dtype, torch.float32))
    return (values_K.unsqueeze(1) - values_K.unsqueeze(0)).abs()


def squashed_cost(values: Tensor | Sequence[float], factor: float) -> Tensor:
    """1 + (D − d_min)(factor − 1)/(d_max − d_min) for D = |v_i − v_j| > 0, and 0 for D = 0: (K, K) for values (K,).

    The nearest wrong value (d_min, over all pairs) costs 1, the farthest (d_max) costs `factor`; tokens of equal value
    cost nothing. Digits have the factor 9 by themselves; the paper's appendix tries 3. Where all values that differ are
    equally far apart, each costs 1.

    Raises ValueError for a factor that is not above 1 and finite.
    """
    if not 1 < factor < math.inf:
        raise ValueError(f"the squash factor must be above 1 and finite, not {factor}")
    distance_KK = euclidean_cost(values)
    differs_KK = distance_KK > 0
    if not differs_KK.any():
        return distance_KK
    nearest, farthest = distance_KK[differs_KK].min(), distance_KK.max()
    span = (farthest - nearest).clamp(min=torch.finfo(distance_KK.dtype).tiny)
    return torch.where(differs_KK, 1 + (distance_KK - nearest) * (factor - 1) / span, 0.0)
