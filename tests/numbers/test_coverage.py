"""Which numbers the loss sees, by hand, for tokenizers of every make."""

import math
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ntl import NumberTokenLoss
from ntl.numbers.vocabulary import Missed, coverage

DIGITS = "0123456789"


def words(*tokens: str, split: str = r"\S+") -> Tokenizer:
    """Writes each match of ``split`` as one token if it is one of these, else as unknown."""
    names = ["[UNK]", *DIGITS, *tokens]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(split), "removed", invert=True)
    return backend


def wrapped(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


TEXTS = ["pay 12 or $7 now", "-3.5 and 1,234 and 99 and $7"]


@pytest.mark.parametrize("made", [wrapped, lambda backend: backend], ids=["transformers", "tokenizers"])
def test_what_is_seen_and_what_is_not(made: Any) -> None:
    tokenizer = made(words("12", "$7", "-3.5", "1,234", "and"))
    found = coverage(TEXTS, tokenizer, {*range(1, 11), 11, 13})  # digits, 12, -3.5
    unknown = "an unknown token, which stands for any text" if made is wrapped else "no token has its digits"
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
    tokenizer = wrapped(words(".", "-", "a", "19", split=r"19|\S"))
    everything = {i for token, i in tokenizer.get_vocab().items() if token not in ".-a[UNK]"}
    assert coverage(["a 7 -3.5 1998"], tokenizer, everything).share == 1
    digits = coverage(["a 7 -3.5 1998"], tokenizer, everything - {tokenizer.get_vocab()["19"]})
    assert (digits.seen, digits.missed) == (
        2,
        (Missed("1998", ("19", "9", "8"), "'19' is not a number token of this loss"),),
    )


def test_a_space_that_is_placed_on_the_first_digit_does_not_count() -> None:
    names = ["<unk>", "▁", *DIGITS, "▁a"]
    backend = Tokenizer(models.Unigram([(name, -1.0) for name in names], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    found = coverage(["a 25"], wrapped(backend), set(range(2, 12)))
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
    tokenizer = wrapped(words("x", split=r"\S"))
    loss = NumberTokenLoss.from_tokenizer(tokenizer, shift=True)
    assert loss.coverage(["x 12 x 7"]).share == 1
    other = wrapped(words("12"))
    assert loss.coverage(["12 7"], tokenizer=other).missed == (
        Missed("12", ("12",), "'12' is not a number token of this loss"),
    )
    assert loss.state_dict() == {}
