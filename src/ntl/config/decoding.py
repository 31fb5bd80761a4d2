"""Schema of decoding: how a trained model's answer is read off."""

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass
class DecodingConfig:
    """``max_new_tokens`` 0 means: the longest answer of the training data, never of the test data, plus a margin.

    ``head`` is what of a model it reads the answer from (``ntl.config.legality``).
    """

    _target_: str = "ntl.decoding.generation.generate"
    name: str = MISSING
    head: str = "lm"
    num_beams: int = field(default=1, metadata={"min": 1})
    max_new_tokens: int = field(default=0, metadata={"min": 0})
    batch_size: int = field(default=256, metadata={"min": 1})


@dataclass
class NumberHeadConfig(DecodingConfig):
    """A number head's output, rounded to ``decimals``; nothing is generated."""

    _target_: str = MISSING
    head: str = MISSING
    decimals: int = field(default=2, metadata={"min": 0, "max": 12})
