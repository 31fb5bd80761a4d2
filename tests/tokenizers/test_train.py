"""The tiny tokenizer trained on the text at hand."""

import json
import unicodedata
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer, train_tokenizer

PRODUCTS = [f"What is {a} times {b}? {a * b}" for a in range(1, 100, 7) for b in range(1, 100, 9)]


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_ids_begin_as_t5s_do_and_words_stay_whole(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(PRODUCTS, tmp_path / "saved")
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert tokenizer.bos_token is None
    assert not any("extra_id" in token for token in tokenizer.get_vocab())
    assert tokenizer("5").input_ids[-1] == 1
    # The text of a template has whole words, and single digits.
    assert tokenizer.tokenize("What is 50 times 91? 4550") == (
        ["▁What", "▁is", "▁", "5", "0", "▁times", "▁", "9", "1", "?", "▁", "4", "5", "5", "0"]
    )
    assert len(tokenizer) == 28


@pytest.mark.parametrize("kind", ["digit", "default"])
def test_another_order_gives_identical_files(tmp_path: Path, kind: str) -> None:
    train_tokenizer(iter(PRODUCTS), tmp_path / "here", kind=kind)
    train_tokenizer(PRODUCTS[::-1], tmp_path / "there", kind=kind)
    assert files(tmp_path / "here") == files(tmp_path / "there")


def has_unknown(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> bool:
    return any(tokenizer.unk_token_id in ids for ids in tokenizer(texts).input_ids)


@pytest.mark.parametrize("text", ["²", "日本", "x" * 10_000, "▁ ▅ a\tb \0"])
def test_one_short_text_is_enough(tmp_path: Path, text: str) -> None:
    tokenizer = train_tokenizer([text], tmp_path / "saved", vocab_size=32)
    assert set("0123456789-.") <= set(tokenizer.get_vocab())
    kept = text.replace("▁", " ").replace("▅", " ").replace("\0", " ")
    assert not has_unknown(tokenizer, [kept, "0123456789", "-1.5"])
    assert tokenizer.decode(tokenizer(kept).input_ids, skip_special_tokens=True) == folded(kept)


def test_no_text_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no text to train a tokenizer on"):
        train_tokenizer(["", " \n"], tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_replaced_in_one_step_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    train_tokenizer(["one"], tmp_path / "saved")
    train_tokenizer(["two"], tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    assert sorted(files(tmp_path / "saved")) == ["tokenizer.json", "tokenizer_config.json"]
    assert "w" in load_tokenizer(tmp_path / "saved").get_vocab()
    assert str(tmp_path) not in json.dumps([content.decode() for content in files(tmp_path / "saved").values()])
