"""Schema of the training objective: which tokens are predicted from which."""

from dataclasses import dataclass

from omegaconf import MISSING


@dataclass
class ObjectiveConfig:
    """``_target_`` is the nn.Module that wraps a model and computes the loss inside its forward."""

    _target_: str = MISSING
    name: str = MISSING


@dataclass
class NextTokenConfig(ObjectiveConfig):
    """Every label is the next token: the paper's objective."""

    _target_: str = "ntl.training.objectives.next_token.NextToken"
    name: str = "next_token"
