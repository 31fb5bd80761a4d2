"""A loss on whole numbers: runs of digits, weighted by place value.

Shape suffixes: V vocabulary, K number tokens, N the positions that count.
"""

import torch
from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.lp import expectation
from ntl.losses.places import before, last_of, numbers_of, with_points
from ntl.losses.rows import Logits, NumberRows, Reduction, is_number, number_rows, reduce
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

    logits are (..., T, V), labels (..., T). With the reduction "none" the loss of a number is at its last digit. The
    mean is over numbers (`count_numbers`); without any it is an exact 0 that still has a graph.
    """
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    count = count_numbers(labels, number_vocab, point_id=point_id, ignore_index=ignore_index)
    digits = is_number(rows.labels, number_vocab, ignore_index)
    return reduce(_relative_errors(rows, digits, point_id), rows, labels, reduction, count)


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


def _relative_errors(rows: NumberRows, digits: Tensor, point_id: int | None) -> Tensor:
    """Return the loss of each row, (N,): a number's at its last digit, 0 at the others."""
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
    return relative_N[number_N].where(rows.select(last_of(inside)), 0.0)


register("number_level", ntl_number_level, distance=False, counted=last_digits)
