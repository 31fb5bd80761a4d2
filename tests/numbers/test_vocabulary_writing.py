"""Checks of how a tokenizer writes numbers, which find digits that the number loss would miss."""

import warnings
from collections.abc import Callable

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ntl.numbers import NumberVocabulary

TEXTS = ["It takes 15 of 860 steps.", *(f"{n} {n * 7}" for n in range(1000))]
REMEDY = r"ntl\.tokenizers\.load_tokenizer.*digits_only=False"


def of_split(pattern: str) -> Tokenizer:
    """Return a trained byte-level BPE tokenizer that splits numbers by ``pattern``."""
    backend = Tokenizer(models.BPE())
    cut = pre_tokenizers.Split(Regex(pattern), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet))
    return backend


def wrapped(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize("made", [wrapped, lambda backend: backend], ids=["transformers", "tokenizers"])
def test_up_to_three_digits_in_a_token(made: Callable[[Tokenizer], object]) -> None:
    """Llama 3 writes numbers like this, although its vocabulary has the ten digits, too."""
    tokenizer = made(of_split("[0-9]{1,3}"))
    with pytest.raises(ValueError, match=rf"writes '12' as '12': .*{REMEDY}"):
        NumberVocabulary.from_tokenizer(tokenizer)
    numbers = NumberVocabulary.from_tokenizer(tokenizer, digits_only=False)
    assert {0.0, 12.0, 374.0, 999.0} <= {*numbers.token_values.tolist()}


def test_a_digit_a_token_is_taken_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = NumberVocabulary.from_tokenizer(wrapped(of_split("[0-9]")))
    assert sorted(numbers.token_values.tolist()) == [*range(10)]


def test_bytes_are_no_numbers() -> None:
    """Llama 2 writes letters without a token as bytes, which are no numbers, unless the byte is a digit."""
    letters = {f"<0x{byte:02X}>": byte for byte in range(256)}
    backend = Tokenizer(models.BPE(letters | {str(digit): 256 + digit for digit in range(10)}, [], byte_fallback=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NumberVocabulary.from_tokenizer(backend)
    without = Tokenizer(models.BPE(letters | {str(digit): 256 + digit for digit in range(7)}, [], byte_fallback=True))
    with pytest.raises(ValueError, match=r"writes '7' as '<0x37>'"):
        NumberVocabulary.from_tokenizer(without)


def words(*tokens: str) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({token: i for i, token in enumerate(("<unk>", *tokens))}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_some_of_the_ten_digits() -> None:
    with pytest.warns(UserWarning, match=r"no token 0, 3, 9, so that the number loss ignores these digits; use a"):
        NumberVocabulary.from_tokenizer(words(*"1245678"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NumberVocabulary.from_tokenizer(words(*"0123456789"))


def test_numbers_that_are_written_without_a_number_token() -> None:
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "5000": 1, "a": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(ValueError, match="writes '7' as '<unk>': no number token of its vocabulary is among them"):
        NumberVocabulary.from_tokenizer(backend, digits_only=False)


def test_pieces_of_numbers_that_are_no_number_tokens() -> None:
    """WordPiece continues a word like this."""
    pieces = {"[UNK]": 0} | {
        f"{mark}{digit}": 10 * k + digit + 1 for k, mark in enumerate(("", "##")) for digit in range(10)
    }
    backend = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.warns(UserWarning, match=r"writes '12' as '1 ##2': .*##2 .*the number loss ignores them; .*load_token"):
        NumberVocabulary.from_tokenizer(backend, digits_only=False)
    with pytest.raises(ValueError, match=REMEDY):
        NumberVocabulary.from_tokenizer(backend)
