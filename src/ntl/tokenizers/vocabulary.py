"""The number tokens of a tokenizer, whatever its kind."""

from typing import Any

from ntl.numbers import NumberVocabulary


def number_vocabulary(tokenizer: Any, *, digits_only: bool = True, vocab_size: int | None = None) -> NumberVocabulary:
    """``NumberVocabulary.from_tokenizer``, which finds the tokens of every kind of ``load_tokenizer``."""
    return NumberVocabulary.from_tokenizer(tokenizer, digits_only=digits_only, vocab_size=vocab_size)
