"""The expected error of the complete answer, by the tree of digits, with a gradient: nothing is sampled.

Shapes: E examples, S prompt length, L numbers that were found for an example.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ntl.decoding.tree import NONE, NumberTokens, search
from ntl.numbers import parse_number

KINDS = ("squared", "absolute", "crps")


def number_masses(
    model: Any, inputs: Mapping[str, Tensor], tokens: NumberTokens, **limits: Any
) -> tuple[Tensor, Tensor]:
    """Return the numbers that the model may answer, and their log probabilities with a graph, (E, L) float64 each.

    Several token sequences that write one number are several entries. What an example lacks is 0 with the log
    probability -inf. ``limits`` are those of `ntl.decoding.tree.search`.
    """
    values, masses = [], []
    for texts, ended_EW in search(model, inputs, tokens, **limits):
        values.append([[0.0] * ended_EW.shape[1] for _ in texts])
        masses.append(ended_EW)
        for own, written, ended_W in zip(values[-1], texts, ended_EW.tolist(), strict=True):
            for place, (text, ended) in enumerate(zip(written, ended_W, strict=False)):
                number = parse_number(text.strip()) if ended > NONE else None
                own[place] = 0.0 if number is None else float(number)
    found = [torch.tensor(each, dtype=torch.float64, device=masses[0].device) for each in values]
    return torch.cat(found, dim=1), torch.cat(masses, dim=1)


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
        ValueError: The kind is unknown, or an example has no number, or none of the grid.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be {', '.join(KINDS)}, not {kind!r}")
    if grid is not None:
        log_masses = log_masses.masked_fill(~torch.isin(values, values.new_tensor(grid)), NONE)
    if not log_masses.isfinite().any(1).all():
        raise ValueError("an example has no number to take the error of: search more prefixes, or give another grid")
    shares_EL, distance_EL = log_masses.softmax(dim=1), (values - targets.unsqueeze(1)).abs()
    if kind == "squared":
        error_E = ((shares_EL * values).sum(1) - targets).square()
    else:
        error_E = (shares_EL * distance_EL).sum(1)
    if kind == "crps":
        sorted_EL, order_EL = values.sort(dim=1)
        below_EL = shares_EL.gather(1, order_EL).cumsum(1)[:, :-1]
        error_E = error_E - (below_EL * (1 - below_EL) * sorted_EL.diff(dim=1)).sum(1)
    return error_E - outside * log_masses.logsumexp(dim=1)


def answer_errors(
    model: Any,
    inputs: Mapping[str, Tensor],
    targets: Sequence[float],
    *,
    tokens: NumberTokens,
    kind: str,
    outside: float,
    **limits: Any,
) -> Tensor:
    """Return the `expected_error` of a model's answer to each prompt, (E,) with a graph."""
    values, log_masses = number_masses(model, inputs, tokens, **limits)
    return expected_error(values, log_masses, values.new_tensor(targets), kind=kind, outside=outside)
