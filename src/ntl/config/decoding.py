"""Schemas of decodings: how an answer is read off a trained model."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ntl.config.settings import MISSING, Rule, Schema, setting
from ntl.config.validation import ANSWERS, HEADS, NUMERIC, PLAIN, kinds_of

OTHER = "leave it out, or take decoding=greedy or decoding=beam"


@dataclass
class DecodingConfig(Schema, schema="decoding/base"):
    """Settings of every decoding; `greedy` and `beam` have no others.

    ``answers`` and ``tokenizers``, of the class, are the kinds that it can read; no tokenizer stands for all.
    """

    answers: ClassVar[tuple[str, ...]] = ("number", "reasoning", "sentence", "numbers", "text", "exact", "continuation")
    tokenizers: ClassVar[tuple[str, ...]] = ()

    _target_: str = setting("ntl.decoding.generation.generate", room="ntl.decoding")
    name: str = setting(MISSING, "The choice of the group.")
    head: str = setting("lm", "The head of the model that it reads.", choices=tuple(HEADS))
    num_beams: int = setting(1, "Beams of the search; 1 is greedy. The paper has 4.", "beams", min=1)
    max_new_tokens: int = setting(
        0, "Longest answer; 0: that of `decoding`, or a little above training's.", "tokens", min=0
    )
    batch_size: int = setting(256, "Examples of one forward pass.", "examples", min=1)
    interval_rows: int = setting(0, "Validation questions, for intervals of test answers; 0: none.", "rows", min=0)
    interval_scale: str = setting(
        "linear", "Intervals from x - d to x + d; log: from x / r to x * r, above 0.", choices=("linear", "log")
    )

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        answers, tokenizer = config.dataset.answers, config.tokenizer.kind
        for key, default in (("interval_rows", 0), ("interval_scale", "linear")):
            if getattr(self, key) != default and answers not in NUMERIC:
                yield f".{key} dataset", "an answer of one number alone has an interval; leave it out."
        if answers not in self.answers:
            yield ". dataset", f"its answer is {ANSWERS[answers]}, not {kinds_of(self.answers)}; {OTHER}."
        if self.tokenizers and tokenizer not in self.tokenizers:
            yield ". tokenizer", f"it reads the tokens of tokenizer={' or '.join(self.tokenizers)}; {OTHER}."


@dataclass
class AutoConfig(DecodingConfig, schema="decoding/auto"):
    """Greedy decoding until a run ends; then greedy or one of ``extra_decodings``, by validation error."""

    answers: ClassVar[tuple[str, ...]] = ("number", "reasoning", "sentence")

    num_beams: int = setting(1, "Beams of the search: greedy alone.", "beams", min=1, max=1)

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        yield from super().rules(config, typed)
        if self is not config.decoding or not config.extra_decodings:
            yield ". extra_decodings", "nothing to choose from; train with extra_decodings=all, or give one decoding."


@dataclass
class DigitMedianConfig(DecodingConfig, schema="decoding/digit_median"):
    """Greedy decoding in which a digit is the median, not the likeliest, of the digits' distribution."""

    answers: ClassVar[tuple[str, ...]] = ("number", "reasoning", "sentence", "numbers")
    tokenizers: ClassVar[tuple[str, ...]] = ("default", "digit")

    _target_: str = "ntl.decoding.generation.digit_median"
    num_beams: int = setting(1, "Beams of the search: greedy alone.", "beams", min=1, max=1)


@dataclass
class SpeculativeConfig(DecodingConfig, schema="decoding/speculative"):
    """Greedy decoding in which the heads of ``objective=mtp`` draft and the model verifies."""

    _target_: str = "ntl.decoding.speculative.speculate"
    num_beams: int = setting(1, "Beams of the search: greedy alone.", "beams", min=1, max=1)
    heads: int = setting(0, "Heads that are used, with the model's own; 0: all that there are; 1: no drafts.", min=0)

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        if not config.objective.drafts:
            yield ". objective", f"the model has no heads to draft with; {OTHER}, or train it with objective=mtp."
        if self.heads > config.objective.drafts:
            yield ".heads objective.heads", "choose at most as many as the model has."
        yield from super().rules(config, typed)


_DECIMALS = "Decimals of the number that is written as the answer."


@dataclass
class NumberHeadConfig(DecodingConfig, schema="decoding/number_head"):
    """The output of a number head; nothing is generated."""

    _target_: str = MISSING
    head: str = MISSING
    decimals: int = setting(2, _DECIMALS, "decimals", origin="paper, Table 1", min=0, max=12)


@dataclass
class TreeConfig(DecodingConfig, schema="decoding/tree"):
    """A point of the model's distribution over numbers, found by a search of the tree of token sequences."""

    answers: ClassVar[tuple[str, ...]] = ("number",)
    tokenizers: ClassVar[tuple[str, ...]] = ("default", "digit")

    _target_: str = MISSING
    num_beams: int = setting(1, "About num_beams/4 prefixes of each length are read.", "prefixes", min=1)
    decimals: int = setting(2, _DECIMALS, "decimals", min=0, max=12)
    splits: list[str] = setting(list, "Test splits to decode; empty: all. Long answers are slow.")
    tolerance: float = setting(1e-3, "A search stops once its open prefixes have this probability.", min=0, max=0.5)
    trim: float = setting(5e-3, "The probability that an expectation leaves out at either end.", min=0, max=0.25)


@dataclass
class LikelihoodConfig(DecodingConfig, schema="decoding/likelihood"):
    """Nothing is decoded: each token of a plain text is scored, given those before it."""

    answers: ClassVar[tuple[str, ...]] = (PLAIN,)

    _target_: str = "ntl.decoding.likelihood.read_likelihood"
    digits_only: bool = setting(True, "Only digits count as numbers; the tokenizer's own setting.")

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        yield from super().rules(config, typed)
        if self.digits_only != config.tokenizer.digits_only:
            yield ".digits_only tokenizer.digits_only", "it is the tokenizer's own setting; set that instead."
