"""Which tokens count as numbers, and their values, for every kind of tokenizer."""

import warnings
from pathlib import Path

import pytest

from ntl.numbers import NumberVocabulary
from ntl.tokenizers import load_tokenizer, number_vocabulary


@pytest.mark.parametrize(("kind", "digits_only"), [("digit", True), ("default", False)])
def test_text_kinds_have_the_plain_ones(spiece_folder: Path, kind: str, digits_only: bool) -> None:
    tokenizer = load_tokenizer(spiece_folder, kind)
    warnings.simplefilter("error")  # until the test ends: what is told is for tokenizers of others
    expected = NumberVocabulary.from_tokenizer(tokenizer, digits_only=digits_only, vocab_size=1000)
    found = number_vocabulary(tokenizer, digits_only=digits_only, vocab_size=1000)
    assert found.values.nan_to_num(-1).equal(expected.values.nan_to_num(-1))


@pytest.mark.parametrize("digits_only", [True, False])
def test_rt_has_the_digits_of_its_tokens_at_every_place_alone(spiece_folder: Path, digits_only: bool) -> None:
    tokenizer = load_tokenizer(spiece_folder, "rt")
    found = number_vocabulary(tokenizer, digits_only=digits_only)
    assert len(found.values) == len(tokenizer)
    assert found.token_ids.tolist() == list(range(len(tokenizer) - 320, len(tokenizer)))
    assert found.token_values.tolist() == list(range(10)) * 32
    assert len(number_vocabulary(tokenizer, vocab_size=len(tokenizer) + 5).values) == len(tokenizer) + 5
    with pytest.raises(ValueError, match="does not hold the tokenizer's largest token id"):
        number_vocabulary(tokenizer, vocab_size=len(tokenizer) - 1)
