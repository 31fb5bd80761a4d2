"""The kinds of tokenizer: how each writes a number. The digit kind edits the ``pre_tokenizer`` of a tokenizer.json."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ntl.system.errors import UserError

Step = dict[str, Any]

# Not \d, which also matches Arabic-Indic and other Unicode digits, which are not number tokens.
DIGIT_SPLIT: Step = {"type": "Split", "pattern": {"Regex": "[0-9]"}, "behavior": "Isolated", "invert": False}


def steps_of(pre_tokenizer: Step | None) -> list[Step]:
    """The steps of a pre-tokenizer as a list, which may be empty."""
    if pre_tokenizer is None:
        return []
    if pre_tokenizer["type"] == "Sequence":
        return list(pre_tokenizer["pretokenizers"])
    return [pre_tokenizer]


def sequence_of(steps: list[Step]) -> Step | None:
    """The inverse of :func:`steps_of`."""
    if len(steps) > 1:
        return {"type": "Sequence", "pretokenizers": steps}
    return steps[0] if steps else None


def merge_digits(pre_tokenizer: Step | None) -> Step | None:
    """The stock segmentation: without the step that :func:`isolate_digits` adds."""
    return sequence_of([step for step in steps_of(pre_tokenizer) if step != DIGIT_SPLIT])


def isolate_digits(pre_tokenizer: Step | None) -> Step | None:
    """Add a step that makes every ASCII digit a word of its own.

    It comes after a metaspace step, which has set the word-start mark already: ``2014`` becomes ``▁ 2 0 1 4``. It comes
    before a byte-level step, which would leave ``Ġ`` on the first digit: `` 12`` becomes ``Ġ 1 2``. But if that adds a
    space before each word (RoBERTa's), it comes after it, as otherwise each digit would get a space.
    """
    steps = steps_of(merge_digits(pre_tokenizer))
    byte_level = (i for i, step in enumerate(steps) if step["type"] == "ByteLevel" and not step["add_prefix_space"])
    at = next(byte_level, len(steps))
    return sequence_of([*steps[:at], DIGIT_SPLIT, *steps[at:]])


@dataclass(frozen=True)
class TokenizerKind:
    """``pre_tokenizer`` edits that entry of tokenizer.json.

    A kind that writes numbers in tokens of its own names its tokenizer class by a dotted name: a subclass of
    ``PreTrainedTokenizerFast`` with a class method ``added_tokens``, the tokens that are appended to the vocabulary. It
    may have ``ROLES``, such as a mask token. ``options`` are settings of ``ntl.config.TokenizerConfig`` that the
    tokenizer is made with and saves.
    """

    pre_tokenizer: Callable[[Step | None], Step | None]
    needs_digits: bool = False
    tokenizer_class: str = "transformers.PreTrainedTokenizerFast"
    writes_numbers: bool = False
    options: tuple[str, ...] = ()


KINDS = {
    "default": TokenizerKind(merge_digits),
    "digit": TokenizerKind(isolate_digits, needs_digits=True),
    "rt": TokenizerKind(
        merge_digits,
        tokenizer_class="ntl.tokenizers.rt_tokenizer.RTTokenizer",
        writes_numbers=True,
        options=("max_place",),
    ),
    "xval": TokenizerKind(
        merge_digits,
        tokenizer_class="ntl.tokenizers.xval_tokenizer.XValTokenizer",
        writes_numbers=True,
        options=("paper_compat",),
    ),
}


def check_kind(kind: str) -> TokenizerKind:
    """The kind of that name. :class:`~ntl.config.UserError` with the valid choices if it does not exist."""
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"unknown tokenizer kind {kind!r}: choose one of {', '.join(sorted(KINDS))}{hint}")
    return KINDS[kind]
