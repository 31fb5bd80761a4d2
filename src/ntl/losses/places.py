"""The runs of digits in labels (..., T): where numbers begin and end, and the places of their digits.

A run lies within the last dimension: neither the end of a row nor an ignored label is inside a number.
"""

import torch
from torch import Tensor

from ntl.numbers import NumberVocabulary


def check_digits(number_vocab: NumberVocabulary) -> None:
    """Raise ValueError if number tokens are not single digits. On a GPU only how many they are is checked."""
    values = number_vocab.token_values
    is_readable = values.device.type == "cpu" and not torch.compiler.is_compiling()
    if len(values) > 10 or (is_readable and not torch.isin(values, torch.arange(10.0)).all()):
        raise ValueError("a loss of places needs number tokens that are single digits: take tokenizer='digit'")


def with_points(labels: Tensor, digits: Tensor, point_id: int | None) -> tuple[Tensor, Tensor]:
    """Return two masks (..., T): the positions that belong to a number, and those of them that are a decimal point.

    A point belongs to a number if it is between two digits.
    """
    if point_id is None:
        return digits, torch.zeros_like(digits)
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
