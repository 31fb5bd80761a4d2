"""Which files make a tokenizer, and what is said about broken ones."""

from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceTrainer, sentencepiece_model_pb2

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer


def message(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_tokenizer(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_stock_class_of_each_kind_of_file(spiece_folder: Path, bpe_folder: Path) -> None:
    t5, gpt2 = load_tokenizer(spiece_folder, "default"), load_tokenizer(bpe_folder, "default")
    assert t5.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    assert t5.convert_tokens_to_ids("<extra_id_0>") == len(t5) - 1
    assert len(gpt2) == 260


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


def pieces_only(whole: bytes) -> bytes:
    """A model cut between two pieces, which still parses."""
    model: Any = sentencepiece_model_pb2.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    model.ParseFromString(whole)
    del model.pieces[20:]
    model.ClearField("trainer_spec")
    model.ClearField("normalizer_spec")
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("folder", "name", "harm", "expected"),
    [
        ("spiece_folder", "spiece.model", lambda whole: b"", " is empty: fetch the file again"),
        ("spiece_folder", "spiece.model", lambda whole: whole[: len(whole) // 2], " is not a whole sentencepiece"),
        ("spiece_folder", "spiece.model", lambda whole: b"version https://git-lfs.github.com", " is a git-lfs pointer"),
        ("spiece_folder", "spiece.model", pieces_only, " is cut short"),
        ("spiece_folder", "tokenizer.json", lambda whole: b"{", ":1: not valid JSON"),
        ("spiece_folder", "tokenizer.json", lambda whole: b"{}", " is no tokenizer file (KeyError"),
        ("spiece_folder", "tokenizer.json", lambda whole: b"\xff\xfe", " is not UTF-8 text"),
        ("spiece_folder", "tokenizer_config.json", lambda whole: b"[" * 100_000, ": not valid JSON ("),
        ("bpe_folder", "vocab.json", lambda whole: whole[: len(whole) * 9 // 10], ":1: not valid JSON"),
        ("bpe_folder", "vocab.json", lambda whole: b"[1, 2]", " is no vocabulary: expected an object token -> id"),
        ("bpe_folder", "merges.txt", lambda whole: whole[:-4], " makes 2 tokens, but 1 of vocab.json (as 'he')"),
        ("bpe_folder", "merges.txt", lambda whole: b"1 2\nq z\n", ":2: 'q z' makes no token of vocab.json"),
    ],
)
def test_the_broken_file_is_named(folder: str, name: str, harm: Any, expected: str, request) -> None:
    path = request.getfixturevalue(folder) / name
    path.write_bytes(harm(path.read_bytes() if path.exists() else b""))
    assert message(path.parent).startswith(f"{path}{expected}")


def test_a_folder_in_the_place_of_a_file(spiece_folder: Path) -> None:
    (spiece_folder / "spiece.model").unlink()
    (spiece_folder / "spiece.model").mkdir()
    assert "cannot be read (Is a directory): save or fetch it again" in message(spiece_folder)


def test_a_sentencepiece_model_that_is_not_t5s(spiece_folder: Path) -> None:
    SentencePieceTrainer.Train(
        sentence_iterator=iter(["a b c"] * 5),
        model_prefix=str(spiece_folder / "spiece"),
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    assert "is no T5 vocabulary" in message(spiece_folder)
