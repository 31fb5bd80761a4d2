"""The edit of a pre-tokenizer that isolates digits."""

from typing import Any

import pytest

from ntl.tokenizers.digit import DIGIT_SPLIT, isolate_digits, merge_digits, sequence_of, steps_of

WHITESPACE = {"type": "WhitespaceSplit"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

SPACED = BYTES | {"add_prefix_space": True}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


@pytest.mark.parametrize(
    ("stock", "digit"),
    [
        (sequence(WHITESPACE, METASPACE), sequence(WHITESPACE, METASPACE, DIGIT_SPLIT)),
        (BYTES, sequence(DIGIT_SPLIT, BYTES)),
        (sequence(WHITESPACE, BYTES), sequence(WHITESPACE, DIGIT_SPLIT, BYTES)),
        (SPACED, sequence(SPACED, DIGIT_SPLIT)),
        (METASPACE, sequence(METASPACE, DIGIT_SPLIT)),
        (None, DIGIT_SPLIT),
    ],
    ids=["t5", "gpt2", "granite", "roberta", "metaspace", "none"],
)
def test_the_cut_goes_behind_a_metaspace_and_before_a_byte_level_step(stock: Any, digit: Any) -> None:
    assert isolate_digits(stock) == digit
    assert isolate_digits(digit) == digit
    assert merge_digits(digit) == stock
    assert merge_digits(stock) == stock


def test_the_argument_is_left_as_it_was() -> None:
    stock = sequence(WHITESPACE, METASPACE)
    isolate_digits(stock)
    assert stock == sequence(WHITESPACE, METASPACE)


@pytest.mark.parametrize("pre_tokenizer", [None, BYTES, sequence(WHITESPACE, METASPACE)])
def test_steps_and_sequence_are_inverses(pre_tokenizer: Any) -> None:
    assert sequence_of(steps_of(pre_tokenizer)) == pre_tokenizer
