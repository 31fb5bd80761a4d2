"""The kinds of tokenizer: how each writes a number."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from ntl.system.errors import UserError
from ntl.tokenizers.digit import Step, isolate_digits, merge_digits


@dataclass(frozen=True)
class Kind:
    """``pre_tokenizer`` edits that entry of tokenizer.json.

    A kind that writes numbers in tokens of its own names the class of its tokenizers, a subclass of
    ``PreTrainedTokenizerFast`` (dotted name: it is imported when one is made), with a class method ``added_tokens``:
    those behind the vocabulary where they are not in it. It may have ``ROLES``, such as a mask token. ``options`` are
    settings of ``ntl.config.TokenizerConfig`` that such a tokenizer is made with and remembers when it is saved.
    """

    pre_tokenizer: Callable[[Step | None], Step | None]
    needs_digits: bool = False
    tokenizer_class: str = "transformers.PreTrainedTokenizerFast"
    writes_numbers: bool = False
    options: tuple[str, ...] = ()


KINDS = {
    "default": Kind(merge_digits),
    "digit": Kind(isolate_digits, needs_digits=True),
    "rt": Kind(
        merge_digits,
        tokenizer_class="ntl.tokenizers.rt_tokenizer.RTTokenizer",
        writes_numbers=True,
        options=("max_place",),
    ),
    "xval": Kind(
        merge_digits,
        tokenizer_class="ntl.tokenizers.xval_tokenizer.XValTokenizer",
        writes_numbers=True,
        options=("paper_compat",),
    ),
}


def check_kind(kind: str) -> Kind:
    """The kind of that name. :class:`~ntl.config.UserError` with the valid choices for one that does not exist."""
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"unknown tokenizer kind {kind!r}: choose one of {', '.join(sorted(KINDS))}{hint}")
    return KINDS[kind]
