"""Number tokens and their values, and checks of how a tokenizer writes numbers, so that no digit is missed."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from ntl import NumberTokenLoss
from ntl.numbers import NumberVocabulary
from ntl.numbers.vocabulary import Missed, coverage


class Tokenizer:
    """The part of a tokenizer's interface that a number vocabulary needs."""

    def __init__(self, *tokens: str):
        self.vocab = {token: token_id for token_id, token in enumerate(tokens)}

    def get_vocab(self) -> dict[str, int]:
        return self.vocab


def found(vocab: NumberVocabulary) -> dict[int, float]:
    return dict(zip(vocab.token_ids.tolist(), vocab.token_values.tolist(), strict=True))


@pytest.mark.filterwarnings("ignore:the tokenizer has no token")
def test_digits_only_takes_the_bare_digits():
    vocab = NumberVocabulary.from_tokenizer(Tokenizer("7", "▁7", "Ġ7", " 7", "12", "a", "", "٣", "²", "7.", "-7", "0"))
    assert found(vocab) == {0: 7.0, 11: 0.0}
    assert vocab.values.dtype == vocab.token_values.dtype == torch.float32
    assert vocab.token_ids.dtype == torch.int64
    assert vocab.values.shape == (12,)
    assert vocab.values[[0, 11]].tolist() == [7.0, 0.0]
    assert vocab.values[1:11].isnan().all()


def test_numbers_of_any_length_and_word_start_marks():
    numbers = {"12": 12.0, "▁7": 7.0, "Ġ007": 7.0, " -5": -5.0, "+3": 3.0, "1.5": 1.5, "5.": 5.0, "▁0.0": 0.0}
    others = ["1,234", "1e3", "inf", "nan", "1_0", "²", "１", "٣", "▁▁7", "Ġ 7", "7 ", ".5", "▁", "-", "", "x1", "1\n"]
    others += ["9" * 39, "9" * 400]  # beyond float32
    vocab = NumberVocabulary.from_tokenizer(Tokenizer(*numbers, *others), digits_only=False)
    assert found(vocab) == dict(enumerate(numbers.values()))


@pytest.mark.filterwarnings("ignore:the tokenizer has no token")
def test_padded_vocabulary_and_ids_with_gaps():
    vocab = NumberVocabulary.from_tokenizer(Tokenizer("a", "1"), vocab_size=8)
    assert vocab.values.shape == (8,)
    assert vocab.vocab_size == vocab.to("meta").vocab_size == 8
    assert NumberVocabulary.from_tokenizer(Tokenizer("a", "1")).vocab_size is None
    assert found(vocab) == {1: 1.0}
    assert vocab.min_logits == 2
    tokenizer = Tokenizer("a")
    tokenizer.vocab["4"] = 9
    vocab = NumberVocabulary.from_tokenizer(tokenizer)
    assert vocab.values.shape == (10,)
    assert found(vocab) == {9: 4.0}


def test_digits_at_places_are_the_number_tokens():
    for digits_only in (True, False):
        vocab = NumberVocabulary.from_tokenizer(
            Tokenizer("7", "a", "_7_0_", "_3_-2_", "x", "_7_19_"), digits_only=digits_only, vocab_size=8
        )
        assert found(vocab) == {2: 7.0, 3: 3.0, 5: 7.0}
        assert (len(vocab.values), vocab.vocab_size) == (8, 8)


def test_vocab_size_below_the_largest_id_and_what_is_no_tokenizer():
    with pytest.raises(TypeError, match="is no tokenizer: give an object with get_vocab"):
        NumberVocabulary.from_tokenizer("gpt2")
    with pytest.raises(ValueError, match=r"largest token id 2.*at least 3"):
        NumberVocabulary.from_tokenizer(Tokenizer("1", "2", "a"), vocab_size=2)
    with pytest.raises(ValueError, match=r"tokenizer=digit.*digits_only=False"):
        NumberVocabulary.from_tokenizer(Tokenizer("a", "▁7", "12"))


def test_from_values():
    vocab = NumberVocabulary.from_values([math.nan, 5, 0, math.nan, -2.5])
    assert found(vocab) == {1: 5.0, 2: 0.0, 4: -2.5}
    again = NumberVocabulary.from_values(vocab.values.double())
    assert again.values.dtype == torch.float32
    assert found(again) == found(vocab)
    refused: list[tuple[Any, str]] = [([math.inf, 1], "finite"), ([[1.0]], "shape"), ([math.nan], "no number token")]
    for values, reason in refused:
        with pytest.raises(ValueError, match=reason):
            NumberVocabulary.from_values(values)


# ---- how a tokenizer writes numbers

TEXTS = ["It takes 15 of 860 steps.", *(f"{n} {n * 7}" for n in range(1000))]
REMEDY = r"ntl\.tokenizers\.load_tokenizer.*digits_only=False"


def of_split(pattern: str) -> Backend:
    """Return a trained byte-level BPE tokenizer that splits numbers by ``pattern``."""
    backend = Backend(models.BPE())
    cut = pre_tokenizers.Split(Regex(pattern), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet))
    return backend


def wrapped(backend: Backend) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize("made", [wrapped, lambda backend: backend], ids=["transformers", "tokenizers"])
def test_up_to_three_digits_in_a_token(made: Callable[[Backend], object]) -> None:
    """Llama 3 writes numbers like this, although its vocabulary has the ten digits, too."""
    tokenizer = made(of_split("[0-9]{1,3}"))
    with pytest.raises(ValueError, match=rf"writes '12' as '12': .*{REMEDY}"):
        NumberVocabulary.from_tokenizer(tokenizer)
    numbers = NumberVocabulary.from_tokenizer(tokenizer, digits_only=False)
    assert {0.0, 12.0, 374.0, 999.0} <= {*numbers.token_values.tolist()}
    with warnings.catch_warnings():  # a digit a token
        warnings.simplefilter("error")
        numbers = NumberVocabulary.from_tokenizer(made(of_split("[0-9]")))
    assert sorted(numbers.token_values.tolist()) == [*range(10)]
    for token in ("100", " 7", "1.5", "-1", "10%"):
        added = of_split("[0-9]")
        added.add_tokens([token])
        with pytest.raises(ValueError, match=rf"writes '{token.strip()}' as '{token}': .*{REMEDY}"):
            NumberVocabulary.from_tokenizer(made(added))


def test_bytes_are_no_numbers() -> None:
    """Llama 2 writes letters without a token as bytes, which are no numbers, unless the byte is a digit."""
    letters = {f"<0x{byte:02X}>": byte for byte in range(256)}
    backend = Backend(models.BPE(letters | {str(digit): 256 + digit for digit in range(10)}, [], byte_fallback=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NumberVocabulary.from_tokenizer(backend)
    without = Backend(models.BPE(letters | {str(digit): 256 + digit for digit in range(7)}, [], byte_fallback=True))
    with pytest.raises(ValueError, match=r"writes '7' as '<0x37>'"):
        NumberVocabulary.from_tokenizer(without)


def test_some_of_the_ten_digits() -> None:
    with pytest.warns(UserWarning, match=r"no token 0, 3, 9, so that the number loss ignores these digits; use a"):
        NumberVocabulary.from_tokenizer(Tokenizer(*"1245678"))


def test_numbers_that_are_written_without_a_number_token() -> None:
    backend = Backend(models.WordLevel({"<unk>": 0, "5000": 1, "a": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(ValueError, match="writes '7' as '<unk>': no number token of its vocabulary is among them"):
        NumberVocabulary.from_tokenizer(backend, digits_only=False)


def test_pieces_of_numbers_that_are_no_number_tokens() -> None:
    """WordPiece continues a word like this."""
    pieces = {"[UNK]": 0} | {
        f"{mark}{digit}": 10 * k + digit + 1 for k, mark in enumerate(("", "##")) for digit in range(10)
    }
    backend = Backend(models.WordPiece(pieces, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.warns(UserWarning, match=r"writes '12' as '1 ##2': .*##2 .*the number loss ignores them; .*load_token"):
        NumberVocabulary.from_tokenizer(backend, digits_only=False)
    with pytest.raises(ValueError, match=REMEDY):
        NumberVocabulary.from_tokenizer(backend)


# Which numbers the loss sees, by hand, for tokenizers of every make.


DIGITS = "0123456789"


def words(*tokens: str, split: str = r"\S+") -> Backend:
    """Writes each match of ``split`` as one token if it is one of these, else as unknown."""
    names = ["[UNK]", *DIGITS, *tokens]
    backend = Backend(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(split), "removed", invert=True)
    return backend


def as_transformers(backend: Backend) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


SEEN = ["pay 12 or $7 now", "-3.5 and 1,234 and 99 and $7"]


@pytest.mark.parametrize("made", [as_transformers, lambda backend: backend], ids=["transformers", "tokenizers"])
def test_what_is_seen_and_what_is_not(made: Any) -> None:
    tokenizer = made(words("12", "$7", "-3.5", "1,234", "and"))
    found = coverage(SEEN, tokenizer, {*range(1, 11), 11, 13})  # digits, 12, -3.5
    unknown = "an unknown token, which stands for any text" if made is as_transformers else "no token has its digits"
    mixed = "'$7' is part number, part other text"
    assert found.seen == 2
    assert list(found.missed) == [
        Missed("7", ("$7",), mixed),
        Missed("1,234", ("1,234",), "'1,234' is part number, part other text"),
        Missed("99", ("[UNK]",), unknown),
        Missed("7", ("$7",), mixed),
    ]
    assert found.share == pytest.approx(2 / 6)
    assert str(found).splitlines()[:2] == [
        "the loss sees 2 of 6 numbers (33.3%)",
        f"  7 (2 times) as '$7': {mixed}",
    ]


def test_a_number_is_seen_if_all_tokens_with_its_digits_are() -> None:
    tokenizer = as_transformers(words(".", "-", "a", "19", split=r"19|\S"))
    everything = {i for token, i in tokenizer.get_vocab().items() if token not in ".-a[UNK]"}
    assert coverage(["a 7 -3.5 1998"], tokenizer, everything).share == 1
    digits = coverage(["a 7 -3.5 1998"], tokenizer, everything - {tokenizer.get_vocab()["19"]})
    assert (digits.seen, digits.missed) == (
        2,
        (Missed("1998", ("19", "9", "8"), "'19' is not a number token of this loss"),),
    )


def test_a_space_that_is_placed_on_the_first_digit_does_not_count() -> None:
    names = ["<unk>", "▁", *DIGITS, "▁a"]
    backend = Backend(models.Unigram([(name, -1.0) for name in names], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    found = coverage(["a 25"], as_transformers(backend), set(range(2, 12)))
    assert (found.seen, found.missed) == (1, ())


class Alone:
    """Says nothing of places, as a tokenizer written in Python: a token a word."""

    def get_vocab(self) -> dict[str, int]:
        return {"▁12": 0, "▁7": 1, "▁x": 2}

    def encode(self, text: str) -> list[int]:
        return [self.get_vocab()[f"▁{word}"] for word in text.split()]

    def __call__(self, text: str, **options: Any) -> Any:
        raise NotImplementedError


def test_without_places_each_number_is_written_alone() -> None:
    found = coverage(["x 12 7"], Alone(), {0})
    assert (found.seen, found.missed) == (1, (Missed("7", ("▁7",), "'▁7' is not a number token of this loss"),))
    nothing = coverage(["none", ""], Alone(), {0})
    assert (math.isnan(nothing.share), str(nothing)) == (True, "there is no number in these texts")


def test_the_loss_asks_the_tokenizer_that_it_was_made_from() -> None:
    tokenizer = as_transformers(words("x", split=r"\S"))
    loss = NumberTokenLoss.from_tokenizer(tokenizer, shift=True)
    assert loss.coverage(["x 12 x 7"]).share == 1
    other = as_transformers(words("12"))
    assert loss.coverage(["12 7"], tokenizer=other).missed == (
        Missed("12", ("12",), "'12' is not a number token of this loss"),
    )
    assert loss.state_dict() == {}
