"""DEL, the digit entropy loss (arXiv 2605.20369): binary cross-entropies of digits, weighted by place.

Shape suffixes: V vocabulary, K number tokens, N the number-labelled positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.places import after, before, check_digits, first_of
from ntl.losses.rows import Logits, Reduction, is_number, number_rows, reduce
from ntl.numbers import NumberVocabulary


def digit_entropy(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    point_id: int | None,
    factor: float = 0.01,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return (f/K) · w · Σ_k q_k b_k with b_k = softplus(z_k) − z_k [k = y], as the authors' code (68c3d4d) does.

    z are the logits of the K digits, q their softmax and f the factor. The weight w is 2, 4, 6, ... for units, tens,
    hundreds, ..., and 1.02^−2, 1.02^−3, ... for decimals. A number is a run of digits and points, the first of which is
    the decimal point; in a run that begins with a point, digits weigh as those of an integer. A point has no loss, and
    all wrong digits cost alike. The gradient is ∂L/∂z_j = (f·w/K) q_j (sigmoid(z_j) − [j = y] + b_j − q·b).

    logits are (..., T, V), labels (..., T); point_id is the token of the decimal point, or None if there is none. The
    mean is over number labels. A digit whose logit is -inf adds nothing. Raises ValueError for number tokens that are
    not single digits.
    """
    check_digits(number_vocab)
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    is_label_NK = F.one_hot(rows.tokens_N, len(rows.values_K)).bool()
    entropy_NK = torch.where(is_label_NK, F.softplus(-rows.logits_NK), F.softplus(rows.logits_NK))
    q_NK = rows.logits_NK.softmax(dim=-1)
    losses_N = (q_NK * entropy_NK.masked_fill(q_NK == 0, 0.0)).mean(dim=-1)
    digits = is_number(rows.labels, number_vocab, ignore_index)
    weight_N = rows.select(_weights(rows.labels, digits, point_id)).to(losses_N.dtype)
    return reduce(factor * weight_N * losses_N, rows, labels, reduction)


def _weights(labels: Tensor, digits: Tensor, point_id: int | None) -> Tensor:
    """Return the weight of each position (..., T) by its place; undefined outside of numbers."""
    points = torch.zeros_like(digits) if point_id is None else labels == point_id
    inside = digits | points
    leading = points & first_of(inside)
    begins_with_point = (before(leading, inside) > 0) | leading
    is_fraction = ((before(points, inside) > 0) | points) & ~begins_with_point
    integer = 2 * (after(inside & ~is_fraction, inside) + 1)
    return torch.where(is_fraction, torch.pow(1.02, -1.0 - before(is_fraction, inside)), integer)


register("digit_entropy", digit_entropy, distance=False)
