"""The number tokens of a tokenizer, whatever its kind."""

import math
from typing import Any

from ntl.numbers import NumberVocabulary
from ntl.numbers.places import find_place_tokens


def number_vocabulary(tokenizer: Any, *, digits_only: bool = True, vocab_size: int | None = None) -> NumberVocabulary:
    """As ``NumberVocabulary.from_tokenizer``, for any tokenizer of ``load_tokenizer``.

    Where a tokenizer has tokens ``_d_e_``, these alone are its number tokens, and the value of each is its digit d,
    whatever its place e (original code: ``ignore_order=True``).
    """
    vocab: dict[str, int] = tokenizer.get_vocab()
    places = find_place_tokens(vocab)
    if not places:
        return NumberVocabulary.from_tokenizer(tokenizer, digits_only=digits_only, vocab_size=vocab_size)
    needed = max(vocab.values()) + 1
    if vocab_size is not None and vocab_size < needed:
        raise ValueError(f"vocab_size={vocab_size} does not hold the tokenizer's largest token id {needed - 1}")
    values = [math.nan] * (needed if vocab_size is None else vocab_size)
    for token_id, (digit, _) in places.items():
        values[token_id] = digit
    return NumberVocabulary.from_values(values)
