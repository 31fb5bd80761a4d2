"""A given tokenizer stays as it is: its settings, its special tokens, its vocabulary; digits only where asked."""

import json
from pathlib import Path
from typing import Any

import pytest
from given import MAKES, save
from transformers import AutoTokenizer

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer, train_tokenizer
from ntl.tokenizers.load import text_backend

SETTINGS = ("chat_template", "padding_side", "truncation_side", "model_max_length", "clean_up_tokenization_spaces")
SETTINGS += ("special_tokens_map", "all_special_tokens")
TEXTS = ["what is 120 times 34?", " 1999", "-3.5 .", "x<|end|>", ""]


def kept(tokenizer: Any) -> dict[str, Any]:
    return {name: getattr(tokenizer, name) for name in SETTINGS} | {"vocab": tokenizer.get_vocab()}


@pytest.fixture(params=MAKES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return save(request.param, tmp_path / request.param)


def test_by_default_it_is_what_transformers_loads(folder: Path) -> None:
    given, ours = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder, "default")
    assert type(ours) is type(given)
    assert kept(ours) == kept(given)
    assert ours(TEXTS).input_ids == given(TEXTS).input_ids


def test_of_digits_nothing_else_changes_and_a_checkpoint_has_all_of_it(folder: Path, tmp_path: Path) -> None:
    given, digit = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder, "digit")
    assert kept(digit) == kept(given)
    assert digit.tokenize("120")[-3:] == ["1", "2", "0"]
    digit.save_pretrained(tmp_path / "checkpoint")
    again = AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    assert kept(again) == kept(given)
    assert again(TEXTS).input_ids == digit(TEXTS).input_ids
    settings = [json.loads((each / "tokenizer_config.json").read_bytes()) for each in (folder, tmp_path / "checkpoint")]
    assert settings[0] == settings[1]
    if given.chat_template:
        messages = [{"role": "user", "content": "7 times 8"}]
        assert again.apply_chat_template(messages) == given.apply_chat_template(messages)


def test_single_digits_are_left_as_they_are(tmp_path: Path) -> None:
    folder = save("smollm2", tmp_path / "given")
    tokenizer = load_tokenizer(folder, "digit")
    assert json.loads(tokenizer.backend_tokenizer.to_str()) == json.loads((folder / "tokenizer.json").read_bytes())


@pytest.mark.parametrize("kind", ["rt", "xval"])
def test_tokens_for_numbers_change_no_other_setting(kind: str, tmp_path: Path) -> None:
    folder = save("smollm2", tmp_path / "given")
    given, ours = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder, kind)
    ours.save_pretrained(tmp_path / "saved")
    for found in (ours, load_tokenizer(tmp_path / "saved", kind)):
        assert [getattr(found, name) for name in SETTINGS[:4]] == [getattr(given, name) for name in SETTINGS[:4]]


@pytest.mark.parametrize("name", [*MAKES, "trained"])
def test_a_special_token_in_a_text_is_text(name: str, tmp_path: Path) -> None:
    """And the ids of all other text are those of the tokenizer."""
    folder = tmp_path / name
    if name == "trained":  # as T5, whose model has ``</s>`` among its pieces
        train_tokenizer(["is it < / s > | p a d e n t x , 1 + 2?", *TEXTS] * 9, folder, kind="digit", vocab_size=60)
    tokenizer: Any = load_tokenizer(folder if name == "trained" else save(name, folder), "digit")
    backend, special = text_backend(tokenizer), set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for token in tokenizer.all_special_tokens:
        ids = backend.encode(f"is{token} it {token}", add_special_tokens=False).ids
        assert not special & {*ids}, token
        assert "".join(tokenizer.decode(ids).split()) == f"is{token}it{token}" or tokenizer.unk_token_id in ids
    for text in (text for text in TEXTS if "<" not in text):
        expected = tokenizer(text, add_special_tokens=False).input_ids
        assert backend.encode(text, add_special_tokens=False).ids == expected


def test_one_without_an_end_token_is_one_line(tmp_path: Path) -> None:
    tokenizer = MAKES["llama3"]()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"names no end token: set eos_token in its tokenizer_config\.json"):
        load_tokenizer(tmp_path)
