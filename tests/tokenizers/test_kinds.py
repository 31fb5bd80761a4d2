"""The kinds of tokenizer: what each names exists, and how digits are isolated."""

from pkgutil import resolve_name
from typing import Any

import pytest

from ntl.config.model import TokenizerConfig
from ntl.tokenizers.kinds import DIGIT_SPLIT, KINDS, isolate_digits, merge_digits


@pytest.mark.parametrize("name", KINDS)
def test_what_a_kind_names_exists(name: str) -> None:
    kind = KINDS[name]
    made_by = resolve_name(kind.tokenizer_class)
    settings = {option: getattr(TokenizerConfig(name=name, kind=name), option) for option in kind.options}
    tokens = made_by.added_tokens(**settings) if kind.writes_numbers else ()
    assert len(tokens) == {"rt": 320, "xval": 1}.get(name, 0)


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
