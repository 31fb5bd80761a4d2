"""Token ids on disk: what is stored, when it is reused, and what a kill leaves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import ntl.data.encode as encode
from ntl.data.encode import answer_text, encode_dataset

ROWS = [
    {"id": "0", "question": "1+2=", "answer": "3"},
    {"id": "1", "question": "22+1=", "answer": "23"},
    {"id": "2", "question": "1?", "answer": "1"},
]


def _tokenizer(byte_level: bool = False) -> PreTrainedTokenizerFast:
    vocab = {token: index for index, token in enumerate(["<pad>", "</s>", "<unk>", *"0123456789+= "])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.ByteLevel() if byte_level else decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def _encode(folder: Path, rows: Any = ROWS, **changes: Any):
    settings = {"cache_dir": folder, "key": "k", "decoder_only": True, "max_length": 64}
    return encode_dataset(rows, _tokenizer(), **{**settings, **changes})


def _texts(example: dict[str, np.ndarray]) -> tuple[Any, ...]:
    tokenizer = _tokenizer()
    return tuple(tokenizer.convert_ids_to_tokens(example[name].tolist()) for name in ("question_ids", "answer_ids"))


def test_decoder_by_hand(tmp_path: Path) -> None:
    dataset = _encode(tmp_path)
    assert len(dataset) == 3
    assert _texts(dataset[1]) == (["2", "2", "+", "1", "="], ["2", "3", "</s>"])
    assert dataset.about == {"truncated": 0, "unknown": 1, "longest_answer": 3}
    assert [len(row["answer_ids"]) for row in dataset.__getitems__([2, 1])] == [2, 3]


def test_an_encoder_reads_its_end_token(tmp_path: Path) -> None:
    dataset = _encode(tmp_path, decoder_only=False)
    assert _texts(dataset[0]) == (["1", "+", "2", "=", "</s>"], ["3", "</s>"])


def test_a_long_question_loses_its_beginning(tmp_path: Path) -> None:
    dataset = _encode(tmp_path, max_length=2)
    assert _texts(dataset[1])[0] == ["1", "="]
    assert dataset.about["truncated"] == 2


def test_the_same_content_is_read_not_made_again(tmp_path: Path) -> None:
    def no_rows():
        raise AssertionError("read again")
        yield

    first = _encode(tmp_path)
    again = _encode(tmp_path, rows=no_rows())
    assert again.folder == first.folder
    np.testing.assert_array_equal(again.tokens, first.tokens)


@pytest.mark.parametrize("change", [{"key": "other"}, {"decoder_only": False}, {"max_length": 3}])
def test_other_content_is_another_folder(tmp_path: Path, change: dict[str, Any]) -> None:
    assert _encode(tmp_path, **change).folder != _encode(tmp_path).folder


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK", 1)
    with pytest.raises(KeyError):
        _encode(tmp_path, rows=[ROWS[0], {"id": "1"}])
    assert list(tmp_path.iterdir()) == []
    chunked = _encode(tmp_path)
    assert _texts(chunked[2]) == (["1", "<unk>"], ["1", "</s>"])


def test_another_process_may_be_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _encode(tmp_path / "a")
    real = encode._write

    def late(folder, *args):
        real(folder, *args)
        target = tmp_path / "b" / first.folder.name
        if not target.exists():
            first.folder.rename(target)

    monkeypatch.setattr(encode, "_write", late)
    dataset = _encode(tmp_path / "b")
    assert len(dataset) == 3
    assert [path.name for path in (tmp_path / "b").iterdir()] == [first.folder.name]


def test_head(tmp_path: Path) -> None:
    dataset = _encode(tmp_path)
    assert [len(dataset.first(rows)) for rows in (0, 2, 9)] == [3, 2, 3]
    with pytest.raises(IndexError):
        dataset.first(2)[2]
    np.testing.assert_array_equal(dataset.first(2)[1]["answer_ids"], dataset[1]["answer_ids"])


def test_an_empty_data_set(tmp_path: Path) -> None:
    assert len(_encode(tmp_path, rows=[])) == 0


def test_only_a_byte_level_decoder_needs_the_space() -> None:
    assert answer_text("7", _tokenizer(byte_level=True), decoder_only=True) == " 7"
    assert answer_text("7", _tokenizer(byte_level=True), decoder_only=False) == "7"
    assert answer_text("7", _tokenizer(), decoder_only=True) == "7"
