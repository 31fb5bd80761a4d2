"""Numbers in a vocabulary: which token ids are numbers, and their values.

Shape suffixes: V vocabulary, K number tokens.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

_DIGITS = frozenset("0123456789")
_WORD_START = re.compile("[▁Ġ ]")
_NUMBER_TOKEN = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


@dataclass(frozen=True, eq=False)
class NumberVocabulary:
    """The number tokens of a vocabulary, as data: what the number losses and number decoding know of a tokenizer.

    values: (V,) float32, the value of each token id, NaN where the token is no number
    token_ids: (K,) int64, the number tokens, ascending
    token_values: (K,) float32, their values
    min_logits: the least width of logits that hold every number token, the largest number-token id + 1
    """

    values: Tensor
    token_ids: Tensor
    token_values: Tensor
    min_logits: int

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, *, digits_only: bool = True, vocab_size: int | None = None) -> Self:
        """The number tokens of anything with `get_vocab() -> {token: id}`, which is left unchanged.

        digits_only: the bare "0" ... "9" alone. Else every token that is `[+-]?[0-9]+(\\.[0-9]*)?` in ASCII once a
            word-start mark ("▁", "Ġ", or a space) is stripped.
        vocab_size: V, the width of the model's logits where it is padded beyond the tokenizer; default: largest id + 1.

        Raises ValueError for a vocabulary without number tokens and a vocab_size that does not hold every id.
        """
        vocab: dict[str, int] = tokenizer.get_vocab()
        needed = max(vocab.values(), default=-1) + 1
        if vocab_size is not None and vocab_size < needed:
            raise ValueError(
                f"vocab_size={vocab_size} does not hold the tokenizer's largest token id {needed - 1}: "
                f"resize the model's embedding to at least {needed}, or leave vocab_size out"
            )
        numbers = [math.nan] * (needed if vocab_size is None else vocab_size)
        for token, token_id in vocab.items():
            numbers[token_id] = _token_value(token, digits_only)
        values = torch.tensor(numbers, dtype=torch.float32)
        return cls.from_values(values.masked_fill(values.isinf(), math.nan))

    @classmethod
    def from_values(cls, values: Tensor | Sequence[float]) -> Self:
        """The vocabulary whose token id i has the value `values[i]` (V,), NaN for a token that is no number.

        Raises ValueError for values that are not one-dimensional, infinite, or all NaN.
        """
        values_V = torch.as_tensor(values, dtype=torch.float32)
        if values_V.dim() != 1:
            raise ValueError(f"values must have shape (V,), not {tuple(values_V.shape)}")
        if values_V.isinf().any():
            raise ValueError("values must be finite in float32: give NaN to tokens that are no number")
        token_ids = (~values_V.isnan()).nonzero().squeeze(-1)
        if not len(token_ids):
            raise ValueError(
                "the vocabulary has no number token: use a digit-level tokenizer (tokenizer=digit), "
                "or digits_only=False for one whose number tokens carry a word-start mark or several digits"
            )
        return cls(values_V, token_ids, values_V[token_ids], int(token_ids[-1]) + 1)

    def to(self, device: torch.device | str) -> Self:
        """The same vocabulary with its tensors on `device`."""
        values, token_ids, token_values = (t.to(device) for t in (self.values, self.token_ids, self.token_values))
        return type(self)(values, token_ids, token_values, self.min_logits)


def _token_value(token: str, digits_only: bool) -> float:
    if digits_only:
        return float(token) if token in _DIGITS else math.nan
    text = token[1:] if _WORD_START.match(token) else token
    return float(text) if _NUMBER_TOKEN.fullmatch(text) else math.nan
