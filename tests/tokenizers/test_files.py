"""Which files make a tokenizer, and what is said about broken ones."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer


def cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def message(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_tokenizer(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_stock_class_of_each_kind_of_file(spiece_folder: Path, bpe_folder: Path) -> None:
    t5, gpt2 = load_tokenizer(spiece_folder, "default"), load_tokenizer(bpe_folder, "default")
    assert t5.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    assert t5.convert_tokens_to_ids("<extra_id_0>") == len(t5) - 1
    assert len(gpt2) == 261


def test_tokenizer_json_goes_before_spiece_model(spiece_folder: Path) -> None:
    load_tokenizer(spiece_folder).save_pretrained(spiece_folder)
    before = load_tokenizer(spiece_folder)("x12").input_ids
    (spiece_folder / "spiece.model").write_bytes(b"broken")
    assert load_tokenizer(spiece_folder)("x12").input_ids == before


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    assert message(tmp_path) == (
        f"{tmp_path} holds no tokenizer: expected tokenizer.json, or spiece.model, or vocab.json and merges.txt"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (lambda whole: b"", "is empty: fetch the file again"),
        (lambda whole: b"hello world" * 50, "is not a whole sentencepiece model"),
        (lambda whole: whole[: len(whole) // 2], "is not a whole sentencepiece model"),
        (lambda whole: b"version https://git-lfs.github.com/spec/v1\noid", "is a git-lfs pointer"),
    ],
)
def test_a_broken_spiece_model(spiece_folder: Path, content: Callable[[bytes], bytes], expected: str) -> None:
    path = spiece_folder / "spiece.model"
    path.write_bytes(content(path.read_bytes()))
    assert message(spiece_folder).startswith(f"{path} {expected}")


def test_a_spiece_model_cut_between_two_pieces(spiece_folder: Path) -> None:
    from sentencepiece import sentencepiece_model_pb2

    path = spiece_folder / "spiece.model"
    model = sentencepiece_model_pb2.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    model.ParseFromString(path.read_bytes())
    pieces_only = sentencepiece_model_pb2.ModelProto(  # pyright: ignore[reportAttributeAccessIssue]
        pieces=list(model.pieces)[:20]
    )
    path.write_bytes(pieces_only.SerializeToString())
    assert f"{path} is cut short" in message(spiece_folder)


def test_a_sentencepiece_model_that_is_not_t5s(spiece_folder: Path) -> None:
    from sentencepiece import SentencePieceTrainer

    SentencePieceTrainer.Train(
        sentence_iterator=iter(["a b c"] * 5),
        model_prefix=str(spiece_folder / "spiece"),
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    assert "is no T5 vocabulary" in message(spiece_folder)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_a_cut_bpe_file_is_named(bpe_folder: Path, name: str, share: float) -> None:
    cut(bpe_folder / name, share)
    assert str(bpe_folder / name) in message(bpe_folder)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "merges.txt",
            "#version: 0.2\n1 2\nĠ 12\n",
            " makes 2 tokens, but 1 of vocab.json (as 'he') come from no merge",
        ),
        ("merges.txt", "#version: 0.2\n1 2\nq z\nh e\n", ":3: 'q z' makes no token of vocab.json"),
        ("vocab.json", "[1, 2]", " is no vocabulary: expected an object token -> id"),
    ],
)
def test_a_wrong_bpe_file_is_named(bpe_folder: Path, name: str, content: str, expected: str) -> None:
    (bpe_folder / name).write_text(content, encoding="utf-8")
    assert message(bpe_folder).startswith(f"{bpe_folder / name}{expected}")


def test_half_of_the_bpe_files(bpe_folder: Path) -> None:
    (bpe_folder / "merges.txt").unlink()
    assert "(vocab.json alone is not enough)" in message(bpe_folder)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", "tokenizer.json:1: not valid JSON"),
        (b"{}", "tokenizer.json is no tokenizer file (KeyError"),
        (b'{"version": "9.9", "added_tokens": []}', "tokenizer.json is no tokenizer file"),
        (b"\xff\xfe", "tokenizer.json is not UTF-8 text"),
    ],
)
def test_a_broken_tokenizer_json(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert expected in message(tmp_path)


def test_a_broken_settings_file_is_the_one_that_is_named(bpe_folder: Path) -> None:
    load_tokenizer(bpe_folder).save_pretrained(bpe_folder)
    cut(bpe_folder / "tokenizer_config.json", 0.5)
    assert f"{bpe_folder / 'tokenizer_config.json'}:" in message(bpe_folder)


@pytest.mark.parametrize("name", ["spiece.model", "tokenizer_config.json"])
def test_a_folder_in_the_place_of_a_file(name: str, spiece_folder: Path) -> None:
    (spiece_folder / name).unlink(missing_ok=True)
    (spiece_folder / name).mkdir()
    assert message(spiece_folder) == f"{spiece_folder / name} cannot be read (Is a directory): save or fetch it again"


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000])
def test_json_that_python_does_not_parse(text: str, spiece_folder: Path) -> None:
    (spiece_folder / "tokenizer_config.json").write_text(text)
    assert f"{spiece_folder / 'tokenizer_config.json'}: not valid JSON (" in message(spiece_folder)
