"""The values of ``loss.implementation`` and of the argument of ``ntl.losses``.

Standard library only, since the losses work without omegaconf.
"""

from enum import StrEnum


class Implementation(StrEnum):
    """How base and number term are computed (``ntl.losses.ce_ntl``); results are equal up to rounding."""

    auto = "auto"
    """``linear`` where benchmarks showed it to be faster: on a CPU, for a large vocabulary; else ``reference``."""
    reference = "reference"
    """One function after the other, from all logits."""
    fused = "fused"
    """Both with their gradient in one pass over the logits."""
    linear = "linear"
    """The same from hidden states, without all logits in memory at once."""
    triton = "triton"
    """``fused`` as one kernel on a GPU, which is not yet measured."""


def checked_implementation(name: str) -> Implementation:
    """ValueError for a name that is none of them."""
    if name not in Implementation.__members__:
        names = ", ".join(map(repr, Implementation.__members__))
        raise ValueError(f"implementation must be {names}, not {name!r}")
    return Implementation(name)
