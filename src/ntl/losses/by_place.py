"""The distances of digits, weighted by their places in the number."""

from collections.abc import Callable

import torch
from torch import Tensor

from ntl.losses.kinds import kind_of, kinds, register
from ntl.losses.places import after, before, check_digits, with_points
from ntl.losses.rows import Logits, Reduction, is_number, number_rows, reduce
from ntl.numbers import NumberVocabulary


def place_weighted(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    point_id: int | None,
    distance: str | Callable[..., Tensor] = "was",
    base: float | None = 10.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return base^k · L with L the loss of a digit and k its place, 0 at units, 1 at tens, −1 behind the decimal point.

    With base=None the weight is the digit's rank, 1 at the last one of the number. With NTL-WAS and the base 10, the
    sum over a number's digits is at least the expected absolute error of the whole number. A number is a run of digits
    and of points between digits. A sign is text that label and prediction share, and changes no distance. |k| is at
    most 30. The gradient is that of L, times the weight.

    logits are (..., T, V), labels (..., T); point_id is the token of the decimal point, or None if a point parts two
    numbers. distance is a registered number loss of single positions, or its name. The mean is over number labels, not
    over weights. Raises ValueError for another distance, and for number tokens that are not single digits.
    """
    check_digits(number_vocab)
    kind = kinds().get(distance) if isinstance(distance, str) else kind_of(getattr(distance, "func", distance))
    if kind is None or kind.is_base or kind.whole or kind.counted or "point_id" in kind.options:
        raise ValueError(f"distance {distance!r} is no number loss of single positions, such as 'was' or 'crps'")
    function = kind.function if isinstance(distance, str) else distance
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    each = function(rows, rows.labels, number_vocab, ignore_index=ignore_index, reduction="none")
    digits = is_number(rows.labels, number_vocab, ignore_index)
    inside, points = with_points(rows.labels, digits, point_id)
    if base is None:
        weights = (after(digits, inside) + 1).to(each.dtype)
    else:
        decimals = digits & (before(points, inside) > 0)
        places = torch.where(decimals, -1 - before(decimals, inside), after(digits & ~decimals, inside))
        weights = torch.pow(base, places.clamp(-30, 30).to(each.dtype))
    return reduce(rows.select(each * weights.where(digits, 0.0)), rows, labels, reduction)


register("place_weighted", place_weighted, distance=False)
