"""Schemas of decodings: how an answer is read off a trained model."""

from dataclasses import dataclass
from typing import ClassVar

from ntl.config.settings import MISSING, setting


@dataclass
class DecodingConfig:
    """Settings of every decoding; `greedy` and `beam` have no others.

    Of a class, not settings: ``answers`` and ``tokenizers`` are the kinds that it can read; no tokenizer means all
    (``ntl.config.validation``). ``drafts``: the heads of multi-token prediction are used, too.
    """

    answers: ClassVar[tuple[str, ...]] = ("number", "reasoning", "sentence", "numbers", "text", "exact", "continuation")
    tokenizers: ClassVar[tuple[str, ...]] = ()
    drafts: ClassVar[bool] = False

    _target_: str = "ntl.decoding.generation.generate"
    name: str = setting(MISSING, "The choice of the group.")
    head: str = setting("lm", "The head of the model that it reads.")
    num_beams: int = setting(1, "Beams of the search; 1 is greedy. The paper has 4.", "beams", min=1)
    max_new_tokens: int = setting(
        0, "Longest answer; 0: as in decoding, else as in training, plus some.", "tokens", min=0
    )
    batch_size: int = setting(256, "Examples of one forward pass.", "examples", min=1)
    interval_rows: int = setting(0, "Validation questions, for intervals of test answers; 0: none.", "rows", min=0)
    interval_scale: str = setting(
        "linear", "Intervals from x - d to x + d; log: from x / r to x * r, above 0.", choices=("linear", "log")
    )


@dataclass
class AutoConfig(DecodingConfig):
    """Greedy decoding until a run ends; then greedy or one of ``extra_decodings``, by validation error."""

    answers: ClassVar[tuple[str, ...]] = ("number", "reasoning", "sentence")

    num_beams: int = setting(1, "Beams of the search: greedy alone.", "beams", min=1, max=1)


@dataclass
class DigitMedianConfig(DecodingConfig):
    """Greedy decoding in which a digit is the median, not the likeliest, of the digits' distribution."""

    answers: ClassVar[tuple[str, ...]] = ("number", "reasoning", "sentence", "numbers")
    tokenizers: ClassVar[tuple[str, ...]] = ("default", "digit")

    _target_: str = "ntl.decoding.generation.digit_median"
    num_beams: int = setting(1, "Beams of the search: greedy alone.", "beams", min=1, max=1)


@dataclass
class SpeculativeConfig(DecodingConfig):
    """Greedy decoding in which the heads of ``objective=mtp`` draft and the model verifies."""

    drafts: ClassVar[bool] = True

    _target_: str = "ntl.decoding.speculative.speculate"
    num_beams: int = setting(1, "Beams of the search: greedy alone.", "beams", min=1, max=1)
    heads: int = setting(0, "Heads that are used, with the model's own; 0: all that there are; 1: no drafts.", min=0)


_DECIMALS = "Decimals of the number that is written as the answer."


@dataclass
class NumberHeadConfig(DecodingConfig):
    """The output of a number head; nothing is generated."""

    _target_: str = MISSING
    head: str = MISSING
    decimals: int = setting(2, _DECIMALS, "decimals", origin="paper, Table 1", min=0, max=12)


@dataclass
class TreeConfig(DecodingConfig):
    """A point of the model's distribution over numbers, found by a search of the tree of token sequences."""

    answers: ClassVar[tuple[str, ...]] = ("number",)
    tokenizers: ClassVar[tuple[str, ...]] = ("default", "digit")

    _target_: str = MISSING
    num_beams: int = setting(1, "A prefix that is read stands for 4/num_beams, or is likelier.", "prefixes", min=1)
    decimals: int = setting(2, _DECIMALS, "decimals", min=0, max=12)
    splits: list[str] = setting(list, "Test splits to decode, none for all; long answers are slow.")
    tolerance: float = setting(1e-3, "A search stops once its open prefixes have this probability.", min=0, max=0.5)
    trim: float = setting(5e-3, "The probability that an expectation leaves out at either end.", min=0, max=0.25)


@dataclass
class LikelihoodConfig(DecodingConfig):
    """Nothing is decoded: each token of a plain text is scored, given those before it."""

    answers: ClassVar[tuple[str, ...]] = ("none",)

    _target_: str = "ntl.decoding.likelihood.read_likelihood"
    digits_only: bool = setting(True, "Only digits count as numbers; the tokenizer's own setting.")
