"""Schema of the training loss: a term on all labelled tokens plus weight times a term on number tokens."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING


class Implementation(Enum):
    """How base and number term are computed (``ntl.losses.ce_ntl``); all give the same but for rounding."""

    auto = "auto"
    """``linear`` where it was measured to be faster: on a CPU, for a large vocabulary; else ``reference``."""
    reference = "reference"
    """One function after the other, from all logits."""
    fused = "fused"
    """Both with their gradient in one pass over the logits."""
    linear = "linear"
    """The same from hidden states, without ever holding all logits."""


@dataclass
class FunctionConfig:
    """A function of ``ntl.losses`` by its dotted path, and its keyword options."""

    _target_: str = MISSING
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class LossConfig:
    """total = base + weight x number (paper, Eq. 3: CE + lambda NTL).

    ``base`` is averaged over all labelled tokens, ``number`` over number-labelled tokens; without ``number`` the
    weight has no effect. ``cost`` builds the cost matrix from the number tokens' values. ``heads`` are those whose
    output the terms read (``ntl.config.legality``).
    """

    name: str = MISSING
    heads: list[str] = field(default_factory=lambda: ["lm"])
    base: FunctionConfig = field(default_factory=lambda: FunctionConfig("ntl.losses.cross_entropy"))
    number: FunctionConfig | None = None
    cost: FunctionConfig | None = None
    weight: float = field(default=0.3, metadata={"min": 0})
    implementation: Implementation = Implementation.auto
