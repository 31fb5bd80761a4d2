"""Digit-level tokens for every published make of tokenizer, and one line for what cannot have them."""

import json
import re
from pathlib import Path

import pytest
from published_makes import MAKES, REFUSED, Made
from transformers import PreTrainedTokenizerFast

from ntl.config import UserError
from ntl.data.encode import answer_text
from ntl.numbers import NumberVocabulary
from ntl.tokenizers import load_tokenizer

TEXTS = ["2014", "-15.67", " 12", "mp3 1st", "a 12", "the 12 the", "12 34.12-1", "x  12", "12 ", "67*20=1340", ""]


def save(made: Made, folder: Path) -> Path:
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made.backend, eos_token=made.end)
    wrapped.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": made.model_type}), encoding="utf-8")
    return folder


@pytest.fixture(params=MAKES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return save(MAKES[request.param](), tmp_path / "stock")


def ids_of(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False).input_ids


def test_every_digit_is_a_number_token_of_its_own_and_all_else_stays(folder: Path) -> None:
    digit, stock = load_tokenizer(folder, "digit"), load_tokenizer(folder, "default")
    for text in TEXTS:
        tokens = digit.convert_ids_to_tokens(ids_of(digit, text))
        assert [token for token in tokens if re.search("[0-9]", token)] == re.findall("[0-9]", text)
        assert digit.decode(ids_of(digit, text)) == stock.decode(ids_of(stock, text))
    assert digit.get_vocab() == stock.get_vocab()
    assert ids_of(digit, "see the other, then") == ids_of(stock, "see the other, then")
    assert any("the" in token for token in digit.tokenize("the"))
    numbers = NumberVocabulary.from_tokenizer(digit)
    assert digit.convert_ids_to_tokens(numbers.token_ids.tolist()) == [f"{int(v)}" for v in numbers.token_values]
    assert sorted(numbers.token_values.tolist()) == list(range(10))


@pytest.mark.parametrize(("make", "answer"), [("gpt2", " 7"), ("gemma", " 7"), ("llama2", "7"), ("t5", "7")])
def test_a_decoder_needs_the_space_where_no_mark_begins_a_text(tmp_path: Path, make: str, answer: str) -> None:
    tokenizer = load_tokenizer(save(MAKES[make](), tmp_path))
    assert answer_text("7", tokenizer, decoder_only=True) == answer
    assert answer_text("7", tokenizer, decoder_only=False) == "7"


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_digit_level_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    source = save(REFUSED[name](), tmp_path)
    load_tokenizer(source, "default")
    with pytest.raises(UserError, match="cannot be digit-level; use tokenizer=default") as caught:
        load_tokenizer(source, "digit")
    assert "\n" not in str(caught.value)
