"""Schema of decoding: how a trained model's answer is read off."""

from dataclasses import dataclass, field
from typing import ClassVar

from omegaconf import MISSING


@dataclass
class DecodingConfig:
    """``max_new_tokens`` 0 means: the longest answer of the training data, never of the test data, plus a margin.

    ``head`` is what of a model it reads the answer from, ``answers`` and ``tokenizers`` are those it can read, where
    it cannot read all (``ntl.config.legality``). ``obeys_model``: whether the generation config in the model's folder
    acts, as the record then says.
    """

    answers: ClassVar[tuple[str, ...]] = ()
    tokenizers: ClassVar[tuple[str, ...]] = ()
    obeys_model: ClassVar[bool] = False

    _target_: str = "ntl.decoding.generation.generate"
    name: str = MISSING
    head: str = "lm"
    num_beams: int = field(default=1, metadata={"min": 1})
    max_new_tokens: int = field(default=0, metadata={"min": 0})
    batch_size: int = field(default=256, metadata={"min": 1})


@dataclass
class OwnConfig(DecodingConfig):
    """The generation config in the model's folder; ``num_beams`` 0 leaves the beams to it, too."""

    obeys_model: ClassVar[bool] = True

    _target_: str = "ntl.decoding.generation.generate_as_the_model_says"
    num_beams: int = field(default=0, metadata={"min": 0})


@dataclass
class NumberHeadConfig(DecodingConfig):
    """A number head's output, rounded to ``decimals``; nothing is generated."""

    _target_: str = MISSING
    head: str = MISSING
    decimals: int = field(default=2, metadata={"min": 0, "max": 12})


@dataclass
class TreeConfig(DecodingConfig):
    """A point of the model's own distribution of numbers, found by a tree of the tokens that write them.

    ``num_beams`` is the prefixes of one length that are held for an example: exact where there are no more. An example
    ends where its prefixes have the probability ``tolerance`` or less together. An expectation leaves out a share
    ``trim`` of the probability at either end of the numbers (``ntl.decoding.point``), and is rounded to ``decimals``.
    ``splits`` are the test splits to read, all of them where none is named: reading takes long where answers are long.
    """

    answers: ClassVar[tuple[str, ...]] = ("number",)
    tokenizers: ClassVar[tuple[str, ...]] = ("default", "digit")

    _target_: str = MISSING
    decimals: int = field(default=2, metadata={"min": 0, "max": 12})
    splits: list[str] = field(default_factory=list)
    tolerance: float = field(default=1e-3, metadata={"min": 0, "max": 0.5})
    trim: float = field(default=5e-3, metadata={"min": 0, "max": 0.25})
