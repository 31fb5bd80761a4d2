"""Which files make a tokenizer, and what is said about broken ones."""

from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer


def message(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_tokenizer(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tokenizer_json_goes_before_spiece_model(spiece_folder: Path) -> None:
    load_tokenizer(spiece_folder).save_pretrained(spiece_folder)
    before = load_tokenizer(spiece_folder)("x12").input_ids
    (spiece_folder / "spiece.model").write_bytes(b"broken")
    assert load_tokenizer(spiece_folder)("x12").input_ids == before


def test_a_folder_without_a_whole_tokenizer(tmp_path: Path, bpe_folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    expected = "expected tokenizer.json, or spiece.model, or vocab.json and merges.txt"
    assert message(tmp_path / "empty") == f"{tmp_path / 'empty'} holds no tokenizer: {expected}"
    (bpe_folder / "merges.txt").unlink()
    assert "(vocab.json alone is not enough)" in message(bpe_folder)


@pytest.mark.parametrize(("name", "content"), [("spiece.model", b"\x0a\xff\x01"), ("tokenizer.json", b"{")])
def test_a_broken_file_is_one_line(name: str, content: bytes, spiece_folder: Path) -> None:
    path = spiece_folder / name
    path.write_bytes(content)
    assert message(spiece_folder).startswith(f"{spiece_folder}: its tokenizer cannot be read (")
    path.write_bytes(b"version https://git-lfs.github.com")
    assert message(spiece_folder).startswith(f"{path} is a git-lfs pointer, not the file itself: run `git lfs pull`")


def test_a_sentencepiece_model_that_is_not_t5s(spiece_folder: Path) -> None:
    SentencePieceTrainer.Train(
        sentence_iterator=iter(["a b c"] * 5),
        model_prefix=str(spiece_folder / "spiece"),
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    assert "is no T5 vocabulary" in message(spiece_folder)
