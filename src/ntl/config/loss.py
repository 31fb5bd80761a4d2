"""Schemas of the loss, a term on all labelled tokens plus a weighted one on number tokens, and of the objective."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# As omegaconf.MISSING; ntl.losses imports this file and works without omegaconf.
MISSING: Any = "???"


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


@dataclass
class FunctionConfig:
    """A function of ``ntl.losses`` by its dotted path, and its keyword options."""

    _target_: str = MISSING
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class LossConfig:
    """total = base + weight x number (paper, Eq. 3: CE + lambda NTL).

    ``base`` is averaged over all labelled tokens, ``number`` over number-labelled tokens; without ``number`` the
    weight has no effect. ``cost`` builds the cost matrix from the number tokens' values. ``heads`` are the model heads
    that the terms apply to (``ntl.config.legality``).
    """

    name: str = MISSING
    heads: list[str] = field(default_factory=lambda: ["lm"])
    base: FunctionConfig = field(default_factory=lambda: FunctionConfig("ntl.losses.cross_entropy"))
    number: FunctionConfig | None = None
    cost: FunctionConfig | None = None
    weight: float = field(default=0.3, metadata={"min": 0})
    implementation: Implementation = Implementation.auto


@dataclass
class ObjectiveConfig:
    """``_target_`` is the nn.Module that wraps a model and computes the loss inside its forward.

    ``head`` is the model head that it trains: ``lm``, ``regression`` or ``masked_number`` (``ntl.config.legality``).
    ``collator`` makes its batches. ``keep_target`` also stores an answer's value, not only its tokens. ``watch`` is the
    validation term that the plateau schedule uses, ``ce`` or ``ntl``: never their sum, so that the schedule does not
    depend on the loss weight.
    """

    _target_: str = MISSING
    name: str = MISSING
    head: str = "lm"
    collator: str = "ntl.data.collate.token_collator"
    keep_target: bool = False
    watch: str = "ce"


@dataclass
class NextTokenConfig(ObjectiveConfig):
    """Every label is the next token: the paper's objective."""

    _target_: str = "ntl.training.objectives.next_token.NextToken"
    name: str = "next_token"


@dataclass
class RegressionConfig(ObjectiveConfig):
    """One output for a sequence against the number that its answer is (paper, Table 4)."""

    _target_: str = "ntl.training.objectives.number_heads.Regression"
    name: str = "regression"
    head: str = "regression"
    collator: str = "ntl.data.collate.regression_collator"
    keep_target: bool = True
    watch: str = "ntl"


@dataclass
class MaskedNumberConfig(ObjectiveConfig):
    """The answer's last number is masked: its token and its value are predicted (xVal)."""

    _target_: str = "ntl.training.objectives.number_heads.MaskedNumber"
    name: str = "masked_number"
    head: str = "masked_number"
    collator: str = "ntl.data.collate.masked_number_collator"
    watch: str = "ntl"
