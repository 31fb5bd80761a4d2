"""Schemas of decodings: how an answer is read off a trained model."""

from dataclasses import dataclass, field
from typing import ClassVar

from omegaconf import MISSING


@dataclass
class DecodingConfig:
    """``max_new_tokens`` 0 means: the longest answer of the training data, never of the test data, plus a margin.

    ``head`` is the model's head that it reads. ``answers`` and ``tokenizers`` are the kinds that it can read; no
    tokenizer means all (``ntl.config.legality``). ``obeys_model``: the generation config in the model's folder is used,
    and the record contains it.
    """

    answers: ClassVar[tuple[str, ...]] = ("number", "reasoning", "text")
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
    """As the generation config in the model's folder says; ``num_beams`` 0 leaves the number of beams to it."""

    obeys_model: ClassVar[bool] = True

    _target_: str = "ntl.decoding.generation.generate_as_the_model_says"
    num_beams: int = field(default=0, metadata={"min": 0})


@dataclass
class NumberHeadConfig(DecodingConfig):
    """The output of a number head, rounded to ``decimals``; nothing is generated."""

    _target_: str = MISSING
    head: str = MISSING
    decimals: int = field(default=2, metadata={"min": 0, "max": 12})


@dataclass
class TreeConfig(DecodingConfig):
    """A point of the model's distribution over numbers, found by a search of the tree of token sequences.

    ``num_beams`` is the number of prefixes of one length that are kept per example; the search is exact where there are
    no more. It stops when the prefixes of an example have probability ``tolerance`` or less in total. An expectation is
    trimmed by a share ``trim`` of the probability at either end (``ntl.decoding.point``) and rounded to ``decimals``.
    ``splits`` are the test splits to decode, empty for all: the search is slow where answers are long.
    """

    answers: ClassVar[tuple[str, ...]] = ("number",)
    tokenizers: ClassVar[tuple[str, ...]] = ("default", "digit")

    _target_: str = MISSING
    decimals: int = field(default=2, metadata={"min": 0, "max": 12})
    splits: list[str] = field(default_factory=list)
    tolerance: float = field(default=1e-3, metadata={"min": 0, "max": 0.5})
    trim: float = field(default=5e-3, metadata={"min": 0, "max": 0.25})


@dataclass
class LikelihoodConfig(DecodingConfig):
    """Nothing is decoded: each token of a plain text is scored, given those before it.

    ``digits_only`` is the tokenizer's: which tokens are numbers.
    """

    answers: ClassVar[tuple[str, ...]] = ("none",)

    _target_: str = "ntl.decoding.likelihood.read_likelihood"
    digits_only: bool = True
