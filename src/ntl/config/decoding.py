"""Schema of decoding: how a trained model's answer is read off."""

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass
class DecodingConfig:
    """``max_new_tokens`` 0 means: the longest answer of the training data, never of the test data, plus a margin."""

    _target_: str = "ntl.decoding.generation.generate"
    name: str = MISSING
    num_beams: int = field(default=1, metadata={"min": 1})
    max_new_tokens: int = field(default=0, metadata={"min": 0})
    batch_size: int = field(default=256, metadata={"min": 1})
