"""The expected error of the complete answer by the tree of numbers, with a gradient: nothing is sampled.

Shapes: E examples, L numbers that were found for an example, W prefixes of a level.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntl.decoding.batches import NOT_FINITE
from ntl.decoding.tree import NONE, Level, NumberTokens, longer, search
from ntl.numbers import parse_number
from ntl.system.errors import Diverged


def number_masses(model: Any, inputs: Mapping[str, Any], tokens: NumberTokens, **limits: Any) -> tuple[Tensor, Tensor]:
    """Return the numbers that the model may answer, and their log probabilities with a graph, (E, L) float64 each.

    Several token sequences that write one number are several entries. What an example lacks is 0 with the log
    probability -inf. ``limits``: as of `ntl.decoding.tree.search`.
    """
    unread = [] if inputs["input_ids"].is_cuda else None
    levels = list(search(model, inputs, tokens, unread=unread, **limits))
    texts = [level.texts for level in levels] if unread is None else _read(levels, unread, tokens.pieces)
    values: list[list[float]] = [[] for _ in inputs["input_ids"]]
    for level, of_level in zip(levels, texts, strict=True):
        for numbers, written in zip(values, of_level, strict=True):
            numbers += [float(parse_number(text.strip()) or 0.0) for text in written]
            numbers += [0.0] * (level.ended_EW.shape[1] - len(written))
    masses = torch.cat([level.ended_EW for level in levels], dim=1)
    values_EL = torch.tensor(values, dtype=torch.float64).to(masses.device, non_blocking=True)
    return values_EL.masked_fill(masses == NONE, 0.0), masses


def _read(levels: Sequence[Level], unread: Sequence[Tensor], pieces: Sequence[str]) -> list[list[list[str]]]:
    """Return the texts of all levels of an ``unread`` search, by one copy from the device."""
    chosen = torch.cat([level.chosen_2EW for level in levels], dim=2)
    are_finite, *read = torch.cat([torch.stack([*unread]).all()[None], chosen.flatten()]).tolist()
    if not are_finite:
        raise Diverged(NOT_FINITE)
    ends = np.cumsum([level.chosen_2EW.shape[2] for level in levels])
    first, *others = np.split(np.array(read).reshape(chosen.shape), ends[:-1], axis=2)
    return [
        *accumulate(others, lambda texts, part: longer(texts, part.tolist(), pieces), initial=[[""] for _ in first[0]])
    ]


def expected_error(
    values: Tensor,
    log_masses: Tensor,
    targets: Tensor,
    *,
    kind: str = "absolute",
    outside: float = 1.0,
    grid: Sequence[float] | None = None,
) -> Tensor:
    """Return the error of a distribution of numbers − outside · log(Σ of its probabilities), (E,).

    X has the values with their probabilities, renormalised, and y is the target. The error is (E X − y)² (``squared``),
    E|X − y| (``absolute``), or E|X − y| − ½ E|X − X'| with X' like X (``crps``, a proper score). The second term is the
    cross entropy of the answer being one of these numbers. With a ``grid`` only its numbers count; with that,
    ``squared`` and ``outside=0`` it is RAFT (Lukasik et al., 2025), renormalised over the grid.

    Args:
        values, log_masses: (E, L), as of `number_masses`. Values of log probability -inf are not read.
        targets: (E,).

    Raises:
        ValueError: An example has no number, or none of the grid.
    """
    if grid is not None:
        numbers = torch.tensor(grid, dtype=values.dtype).to(values.device, non_blocking=True)
        log_masses = log_masses.masked_fill(~torch.isin(values, numbers), NONE)
    if not log_masses.isfinite().any(1).all():
        raise ValueError("an example has no number to take the error of: search more prefixes, or give another grid")
    shares_EL, distance_EL = log_masses.softmax(dim=1), (values - targets.unsqueeze(1)).abs()
    if kind == "squared":
        error_E = ((shares_EL * values).sum(1) - targets).square()
    else:
        error_E = (shares_EL * distance_EL).sum(1)
    if kind == "crps":
        sorted_EL, order_EL = values.sort(dim=1)
        below_EL = (shares_by_value_EL := shares_EL.gather(1, order_EL)).cumsum(1)[:, :-1]
        above_EL = shares_by_value_EL.flip(1).cumsum(1).flip(1)[:, 1:]  # 1 - below would round what is far away
        error_E = error_E - (below_EL * above_EL * sorted_EL.diff(dim=1)).sum(1)
    return error_E - outside * log_masses.logsumexp(dim=1)
