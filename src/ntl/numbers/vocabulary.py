"""The number tokens of a vocabulary and their values.

Shape suffixes: V vocabulary, K number tokens.
"""

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from ntl.numbers.coverage import OTHER_BYTE
from ntl.numbers.text import find_place_tokens

_DIGITS = frozenset("0123456789")
# Texts to check how a tokenizer writes numbers: short and long ones, alone, after a space and in a sentence.
_SAMPLES = ("7", "12", " 374", "2024", "It takes 15 of 860 steps.", "90536")
_REMEDY = "load the tokenizer with ntl.tokenizers.load_tokenizer, which makes each digit a token of its own"
# Number losses are large beside cross entropy where values span more than this. Our choice; digits span 9.
_WIDE_SPAN = 100.0
_WORD_START = re.compile("[▁Ġ ]")
_NUMBER_TOKEN = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


@dataclass(frozen=True, eq=False)
class NumberVocabulary:
    """The number tokens of a vocabulary: all that the number losses and number decoding know of a tokenizer.

    Attributes:
        values: (V,) float32, the value of each token id; NaN for tokens that are not numbers.
        token_ids: (K,) int64, the ids of the number tokens, ascending.
        token_values: (K,) float32, their values.
        min_logits: The least width of the logits, which is the largest number-token id + 1.
        vocab_size: The exact width that the logits must have; None if only the least width is known.
    """

    values: Tensor
    token_ids: Tensor
    token_values: Tensor
    min_logits: int
    vocab_size: int | None = None

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, *, digits_only: bool = True, vocab_size: int | None = None) -> Self:
        """Find the number tokens of a tokenizer, which is left unchanged.

        Of tokens ``_d_e_`` of the Regression Transformer, only these are number tokens, and the value of each is its
        digit d, whatever its place e (``ignore_order=True`` in the original code). Warns of digits that are no tokens,
        and with digits_only=False of numbers that are written with other tokens.

        Args:
            tokenizer: Any object with `get_vocab() -> {token: id}`; one with `encode` is checked on a few numbers.
            digits_only: Whether only the bare "0" ... "9" are number tokens. Otherwise it is every token that matches
                `[+-]?[0-9]+(\\.[0-9]*)?` in ASCII after a word-start mark ("▁", "Ġ", or a space) is stripped.
            vocab_size: V, the exact width of the model's logits, if it is known.

        Raises:
            TypeError: The object is not a tokenizer.
            ValueError: The vocabulary has no number tokens, the tokenizer does not write numbers digit by digit
                although digits_only is set, or vocab_size is too small for the tokenizer's ids.
        """
        if not hasattr(tokenizer, "get_vocab"):
            what = f"{tokenizer!r}, a str," if isinstance(tokenizer, str) else f"a {type(tokenizer).__name__}"
            raise TypeError(
                f"{what} is no tokenizer: give an object with get_vocab(), such as that of "
                "ntl.tokenizers.load_tokenizer(folder_or_hub_id)"
            )
        vocab: dict[str, int] = tokenizer.get_vocab()
        needed = max(vocab.values(), default=-1) + 1
        if vocab_size is not None and vocab_size < needed:
            raise ValueError(
                f"vocab_size={vocab_size} does not hold the tokenizer's largest token id {needed - 1}: "
                f"resize the model's embedding to at least {needed}, or leave vocab_size out"
            )
        values = torch.full((vocab_size or needed,), math.nan, dtype=torch.float32)
        places = find_place_tokens(vocab)
        known = {token_id: float(digit) for token_id, (digit, _) in places.items()}
        if not places:
            known = {token_id: _token_value(token, digits_only) for token, token_id in vocab.items()}
        values[torch.tensor([*known], dtype=torch.int64)] = torch.tensor([*known.values()], dtype=torch.float32)
        found = replace(cls.from_values(values.masked_fill(values.isinf(), math.nan)), vocab_size=vocab_size)
        if not places and hasattr(tokenizer, "encode"):
            _check_writing(tokenizer, vocab, set(found.token_ids.tolist()), digits_only)
        if digits_only and not places and (absent := sorted(_DIGITS - vocab.keys())):
            warnings.warn(
                f"the tokenizer has no token {', '.join(absent)}, so that the number loss ignores these digits; use a "
                "tokenizer that has all ten, or digits_only=False if it writes them in longer tokens",
                stacklevel=2,
            )
        return found

    @classmethod
    def from_values(cls, values: Tensor | Sequence[float]) -> Self:
        """Create the vocabulary whose token id i has the value `values[i]`, NaN for a token that is not a number.

        Raises ValueError if the values (V,) are not one-dimensional, contain infinities, or are all NaN.
        """
        values_V = torch.as_tensor(values, dtype=torch.float32)
        if values_V.dim() != 1:
            raise ValueError(f"values must have shape (V,), not {tuple(values_V.shape)}")
        if values_V.isinf().any():
            raise ValueError("values must be finite in float32: use NaN for tokens that are not numbers")
        token_ids = (~values_V.isnan()).nonzero().squeeze(-1)
        if not len(token_ids):
            raise ValueError(
                "the vocabulary has no number token: use a digit-level tokenizer (tokenizer=digit), "
                "or digits_only=False for one whose number tokens carry a word-start mark or several digits"
            )
        return cls(values_V, token_ids, values_V[token_ids], int(token_ids[-1]) + 1)

    @classmethod
    def without_numbers(cls, size: int) -> Self:
        """Create the vocabulary of ``size`` tokens of which none is a number."""
        none = torch.full((size,), torch.nan)
        return cls(none, none[:0].long(), none[:0], 0)

    @property
    def is_wide(self) -> bool:
        """Whether the values span more than 100, so that distances between them make large losses."""
        smallest, largest = self.token_values.aminmax()
        return bool(largest - smallest > _WIDE_SPAN)

    def to(self, device: torch.device | str) -> Self:
        """Return the same vocabulary with its tensors on `device`."""
        values, token_ids, token_values = (t.to(device) for t in (self.values, self.token_ids, self.token_values))
        return replace(self, values=values, token_ids=token_ids, token_values=token_values)


def _check_writing(tokenizer: Any, vocab: dict[str, int], numbers: set[int], digits_only: bool) -> None:
    """Raise ValueError or warn if the tokenizer writes numbers with tokens that are not in ``numbers``."""
    written = [list(getattr(found := tokenizer.encode(sample), "ids", found)) for sample in _SAMPLES]
    used = {token_id for ids in written for token_id in ids}
    token_of = {token_id: token for token, token_id in vocab.items() if token_id in used}
    missed = {i for i, token in token_of.items() if i not in numbers and _DIGITS & {*OTHER_BYTE.sub("", token)}}
    example = next((k for k, ids in enumerate(written) if missed & {*ids} or not used & numbers), None)
    if example is None:
        return
    tokens = " ".join(token_of.get(i, f"<id {i}>") for i in written[example])
    problem = f"the tokenizer writes {_SAMPLES[example].strip()!r} as {tokens!r}: "
    if digits_only:
        raise ValueError(
            f"{problem}with digits_only=True only the ten bare digits count; {_REMEDY}, or use digits_only=False"
        )
    if not used & numbers:
        raise ValueError(f"{problem}no number token of its vocabulary is among them; take another tokenizer")
    ignored = " ".join(sorted(token_of[i] for i in missed))
    warnings.warn(
        f"{problem}{ignored!r} are not number tokens, so that the number loss ignores them; {_REMEDY}",
        stacklevel=3,
    )


def _token_value(token: str, digits_only: bool) -> float:
    if digits_only:
        return float(token) if token in _DIGITS else math.nan
    text = token[1:] if _WORD_START.match(token) else token
    return float(text) if _NUMBER_TOKEN.fullmatch(text) else math.nan
