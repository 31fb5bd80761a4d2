"""The ways in which base and number term are computed: one list for ``loss.implementation`` and ``ntl.losses``.

Standard library only: the losses work without omegaconf.
"""

from enum import StrEnum


class Implementation(StrEnum):
    """How base and number term are computed (``ntl.losses.ce_ntl``); all give the same but for rounding."""

    auto = "auto"
    """``linear`` where it was measured to be faster: on a CPU, for a large vocabulary; else ``reference``."""
    reference = "reference"
    """One function after the other, from all logits."""
    fused = "fused"
    """Both with their gradient in one pass over the logits."""
    linear = "linear"
    """The same from hidden states, without ever holding all logits."""
    triton = "triton"
    """``fused`` as one kernel on a GPU, which is not yet measured."""


def checked_implementation(name: str) -> Implementation:
    """ValueError for a name that is none of them."""
    if name not in Implementation.__members__:
        names = ", ".join(map(repr, Implementation.__members__))
        raise ValueError(f"implementation must be {names}, not {name!r}")
    return Implementation(name)
