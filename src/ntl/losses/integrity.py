"""NTIL, the numerical token integrity loss (arXiv 2505.13077): distances of digits and of the numbers they write.

Shape suffixes: V vocabulary, K number tokens, N the number-labelled positions.
"""

import torch
from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.places import after, before, check_digits, last_of, numbers_of
from ntl.losses.rows import Logits, NumberRows, Reduction, is_number, number_rows, reduce
from ntl.numbers import NumberVocabulary

_TEMPERATURE, _RELATIVE, _MAGNITUDE = 0.1, 0.2, 0.2


def ntil(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return emd + 0.2 rel + 0.2 mag of each row, the last dimension: the N of the authors' code (864abaa).

    emd is the mean over digits of 1.2^k Σ_j q_j |v_j − y|, q the softmax over the digits alone and k = 0 at the units.
    With A the number of the likeliest digits of a run and Y that of its labels, rel is the mean over runs of
    |A − Y| / (max(A, Y) + 1), and mag that of log((max(A, Y) + 1) / (min(A, Y) + 1)). A point parts two runs. The
    gradient of A is straight-through, ∂A/∂z_j = 10^k s_j (v_j − Σ s v) / 0.1 with s = softmax(z / 0.1). The authors'
    Gumbel noise, and their total CE + 0.3 · N · CE/N (the ratio without a gradient), are not part of this function.

    logits are (..., T, V), labels (..., T). "none" has the loss of a row at its last digit. The mean is over rows with
    a label; those without digits count as 0. Raises ValueError for number tokens that are not single digits.
    """
    check_digits(number_vocab)
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    digits = is_number(rows.labels, number_vocab, ignore_index)
    found = rows.labels, number_vocab, ignore_index
    each = reduce(_parts(rows, digits), rows, rows.labels, "none").sum(-1, keepdim=True)
    losses_N = rows.select(each.expand(digits.shape)).where(rows.select(last_label(*found)), 0.0)
    return reduce(losses_N, rows, labels, reduction, last_label(*found).sum())


def last_label(labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> Tensor:
    """Return the mask (..., T) of one position for each row with a label: its last digit, or else its last label."""
    digits = is_number(labels, number_vocab, ignore_index)
    chosen = digits.where(digits.any(-1, keepdim=True), labels != ignore_index)
    return chosen & (chosen.flip(-1).cumsum(-1).flip(-1) == 1)


def _parts(rows: NumberRows, digits: Tensor) -> Tensor:
    """Return what each digit adds to the loss of its row, (N,); the terms of a number are at its last digit."""
    dtype, last = rows.logits_NK.dtype, last_of(digits)
    place_N, from_first_N = (rows.select(each(digits, digits)).to(dtype) for each in (after, before))
    share_N, share_of_numbers_N = (
        rows.select((1 / each.sum(-1, keepdim=True).clamp(min=1)).expand(digits.shape)).to(dtype)
        for each in (digits, last)
    )
    distance_NK = (rows.values_K - rows.targets_N.unsqueeze(-1)).abs()
    emd_N = torch.pow(1.2, place_N) * (rows.logits_NK.softmax(dim=-1) * distance_NK).sum(-1)

    top_N1, at_N1 = rows.logits_NK.detach().max(-1, keepdim=True)
    soft_N = (((rows.logits_NK - top_N1) / _TEMPERATURE).softmax(dim=-1) * rows.values_K).sum(-1)
    digit_N = rows.values_K[at_N1.squeeze(-1)] + (soft_N - soft_N.detach())
    # In units of the first digit's place: both terms stay as they are, and nothing overflows.
    unit_N, number_N = torch.pow(10.0, -from_first_N.clamp(max=30)), rows.select(numbers_of(digits))
    none_N, counted_N = torch.zeros_like(unit_N), unit_N if rows.counts_N is None else unit_N * rows.counts_N
    error_N = none_N.index_add(0, number_N, counted_N * (digit_N - rows.targets_N))[number_N]
    label_N = none_N.index_add(0, number_N, counted_N * rows.targets_N)[number_N]
    relative_N = error_N.abs() / (label_N + error_N.clamp(min=0) + unit_N)
    magnitude_N = (error_N.abs() / (label_N + error_N.clamp(max=0) + unit_N)).log1p()
    of_numbers_N = (_RELATIVE * relative_N + _MAGNITUDE * magnitude_N).where(rows.select(last), 0.0)
    return share_N * emd_N + share_of_numbers_N * of_numbers_N


register("ntil", ntil, distance=False, counted=last_label, one_weight=True)
