"""Losses of whole numbers, whose digits count by their places, and the runs of digits in labels (..., T).

A run lies within the last dimension: neither the end of a row nor an ignored label is inside a number.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ntl.losses.lp import expectation
from ntl.losses.registry import find, register
from ntl.losses.rows import Logits, Reduction, check_positive, is_number, number_rows, reduce
from ntl.numbers import NumberVocabulary


def ntl_number_level(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    point_id: int | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return |x̂ − x| / max(|x|, u), the relative error of the expected number x̂ = Σ_t 10^(−t) ŷ_t over its digits.

    A number is a run of number labels along the last dimension, t = 0 at its first digit; x has the digits of the label
    in place of the expected ones. u is one unit of the first digit's place. It keeps the error of a label such as 0 or
    0.05 bounded and its gradient from vanishing. Because places are counted from the first digit, they never overflow,
    however many digits there are. With point_id, the decimal point between two digits belongs to the number but has no
    place of its own. A sign is text that label and prediction share, and has no effect: |−x̂ + x| = |x̂ − x|.

    The vocabulary must be one of single digits. The loss is not in the paper, which names it as future work. The ntloss
    package's NumberLevelLoss divides by |x̂| + |x|, which has no gradient at a label 0.
    With the reduction "none" the loss of a number is at its last digit. The mean is over numbers (`count_numbers`).
    """
    check_digits(number_vocab)
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    digits = is_number(rows.labels, number_vocab, ignore_index)
    inside, _ = with_points(rows.labels, digits, point_id)
    number_N = rows.select(numbers_of(inside))
    place_N = rows.select(before(digits, inside)).to(rows.logits_NK.dtype)
    counts_N = torch.ones_like(place_N) if rows.counts_N is None else rows.counts_N.to(place_N.dtype)
    # A digit at 1e-30 of the first one's place is lost to rounding in any type, and float32 would become subnormal.
    unit_N = torch.pow(10.0, -place_N.clamp(max=30)) * counts_N
    total_N = unit_N.new_zeros(unit_N.shape)
    error_N = total_N.index_add(0, number_N, unit_N * (expectation(rows) - rows.targets_N))
    label_N = total_N.index_add(0, number_N, unit_N * rows.targets_N)
    relative_N = error_N.abs() / label_N.abs().clamp(min=1)
    losses_N = relative_N[number_N].where(rows.select(last_of(inside)), 0.0)
    return reduce(losses_N, rows, labels, reduction, last_of(inside).sum())


def count_numbers(
    labels: Tensor, number_vocab: NumberVocabulary, *, point_id: int | None = None, ignore_index: int = -100
) -> Tensor:
    """Count the runs of number labels in labels (..., T), () int64: the denominator of `ntl_number_level`."""
    labels = labels.long() if labels.dim() else labels.long().unsqueeze(0)
    return last_digits(labels, number_vocab, ignore_index, point_id=point_id).sum()


def last_digits(
    labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int, *, point_id: int | None = None
) -> Tensor:
    """Return the mask (..., T) of the last digits of numbers in labels (..., T), where their losses are placed."""
    digits = is_number(labels, number_vocab, ignore_index)
    return last_of(with_points(labels, digits, point_id)[0])


def place_weighted(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    point_id: int | None,
    distance: str | Callable[..., Tensor] = "was",
    base: float | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return w · L with L the loss of a digit and w its rank in the number, 1 at the last one; or base^k by its place.

    k is 0 at units, 1 at tens, −1 behind the decimal point. With NTL-WAS and the base 10, the sum over a number's
    digits is at least the expected absolute error of the whole number, but a long number drowns all else. A number is
    a run of digits and of points between digits. A sign is text that label and prediction share, and changes no
    distance. |k| is at most 30. The gradient is the gradient of L, times the weight.

    point_id is the token of the decimal point, or None if a point parts two numbers. distance is a registered number
    loss of single positions, or its name. The mean is over number labels, not over weights. Raises ValueError for
    another distance, and for number tokens that are not single digits.
    """
    check_digits(number_vocab)
    kind = find(getattr(distance, "func", distance))  # a partial has options of its own
    if kind is None or kind.is_base or kind.whole or kind.counted or "point_id" in kind.options:
        raise ValueError(f"distance {distance!r} is no number loss of single positions, such as 'was' or 'crps'")
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    function = distance if callable(distance) else kind.function
    losses = function(rows, rows.labels, number_vocab, ignore_index=ignore_index, reduction="none")
    digits = is_number(rows.labels, number_vocab, ignore_index)
    inside, points = with_points(rows.labels, digits, point_id)
    if base is None:
        weights = (after(digits, inside) + 1).to(losses.dtype)
    else:
        check_positive("base", base)
        decimals = digits & (before(points, inside) > 0)
        places = torch.where(decimals, -1 - before(decimals, inside), after(digits & ~decimals, inside))
        weights = torch.pow(base, places.clamp(-30, 30).to(losses.dtype))
    return reduce(rows.select(losses * weights.where(digits, 0.0)), rows, labels, reduction)


register("number_level", ntl_number_level, distance=False, digits=True, counted=last_digits)
register("place_weighted", place_weighted, distance=False, digits=True)


# ---- runs of digits


def check_digits(number_vocab: NumberVocabulary) -> None:
    """Raise ValueError if number tokens are not single digits. On a GPU only how many they are is checked."""
    values = number_vocab.token_values
    is_readable = values.device.type == "cpu" and not torch.compiler.is_compiling()
    if len(values) > 10 or (is_readable and not torch.isin(values, torch.arange(10.0)).all()):
        raise ValueError(
            "a loss of places needs number tokens that are single digits: tokenizer=digit, or load_tokenizer"
        )


def with_points(labels: Tensor, digits: Tensor, point_id: int | None) -> tuple[Tensor, Tensor]:
    """Return two masks (..., T): the positions that belong to a number, and among them the decimal points.

    A point belongs to a number if it is between two digits.
    """
    if point_id is None:
        return digits, torch.zeros_like(digits)
    if isinstance(point_id, bool) or not isinstance(point_id, int):
        raise TypeError(f"point_id must be the id of a token, not {point_id!r}")
    points = (labels == point_id) & _moved(digits, 1) & _moved(digits, -1)
    return digits | points, points


def first_of(inside: Tensor) -> Tensor:
    """Return the mask (..., T) of the first position of each run."""
    return inside & ~_moved(inside, 1)


def last_of(inside: Tensor) -> Tensor:
    """Return the mask (..., T) of the last position of each run."""
    return inside & ~_moved(inside, -1)


def before(counted: Tensor, inside: Tensor) -> Tensor:
    """Return how many counted positions of the same run precede each position, (..., T) int64; 0 outside of runs."""
    preceding = counted.long().cumsum(-1) - counted.long()
    return (preceding - preceding.where(first_of(inside), 0).cummax(-1).values).where(inside, 0)


def after(counted: Tensor, inside: Tensor) -> Tensor:
    """Return how many counted positions of the same run follow each position, (..., T) int64; 0 outside of runs."""
    return before(counted.flip(-1), inside.flip(-1)).flip(-1)


def numbers_of(inside: Tensor) -> Tensor:
    """Return the index of the run of each position among all runs, (..., T) int64; undefined outside of runs."""
    return (first_of(inside).flatten().cumsum(0) - 1).view(inside.shape).clamp(min=0)


def _moved(mask: Tensor, by: int) -> Tensor:
    """Return the mask moved to the right (1) or to the left (-1), with False at the end."""
    outside = torch.zeros_like(mask[..., :1])
    return torch.cat([outside, mask[..., :-1]] if by > 0 else [mask[..., 1:], outside], dim=-1)
