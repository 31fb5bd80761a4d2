"""Token ids and values on disk: what is stored, when it is reused, and what a kill leaves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ntl.config import UserError
from ntl.data import encode, files, store
from ntl.data.encode import encode_dataset
from ntl.data.encoded import EncodedDataset
from ntl.data.store import Example, Rows
from ntl.tokenizers import load_tokenizer, train_tokenizer

ROWS = [
    {"id": "0", "question": "1+2=", "answer": "3"},
    {"id": "1", "question": "22+1=", "answer": "23"},
    {"id": "2", "question": "1?", "answer": "1"},
]


def _tokenizer() -> PreTrainedTokenizerFast:
    vocab = {token: index for index, token in enumerate(["<pad>", "</s>", "<unk>", *"0123456789+= "])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def _encode(folder: Path, rows: Any = ROWS, tokenizer: Any = None, **changes: Any) -> EncodedDataset:
    settings = {"cache_dir": folder, "key": "k", "decoder_only": True, "max_length": 64}
    return encode_dataset(lambda: rows, tokenizer or _tokenizer(), **{**settings, **changes})


def _finished(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def _prepared(folder: Path, rows: int = 4000) -> Rows:
    """A prepared file of some blocks (read with a small ``files.BLOCK``)."""
    examples = [Example(id=f"train/{i:05d}", question=f"{i}+{i % 7}=", answer=str(i + i % 7)) for i in range(rows)]
    folder.mkdir(exist_ok=True)
    entry = store.write_split(folder, "train", examples)
    return store.read_split(folder, "train", entry)


def _same(first: EncodedDataset, second: EncodedDataset) -> bool:
    contents = [{path.name: path.read_bytes() for path in each.folder.iterdir()} for each in (first, second)]
    return contents[0] == contents[1]


@pytest.fixture(scope="module")
def xval(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Any]:
    """xVal's tokenizer, whose tokens have values, by ``paper_compat``."""
    folder = tmp_path_factory.mktemp("tokenizer") / "trained"
    train_tokenizer(["1+2= -"], folder, kind="xval", vocab_size=60)
    return {rule: load_tokenizer(folder, kind="xval", paper_compat=rule) for rule in (False, True)}


@pytest.fixture(params=["ids", "values"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    """One without values, and one with."""
    return _tokenizer() if request.param == "ids" else request.getfixturevalue("xval")[False]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """A prepared file of many blocks."""
    monkeypatch.setattr(files, "BLOCK", 16_000)
    return _prepared(tmp_path / "data")


def _texts(example: dict[str, np.ndarray]) -> tuple[Any, ...]:
    tokenizer = _tokenizer()
    return tuple(tokenizer.convert_ids_to_tokens(example[name].tolist()) for name in ("question_ids", "answer_ids"))


def test_decoder_by_hand(tmp_path: Path) -> None:
    dataset = _encode(tmp_path)
    assert len(dataset) == 3
    assert _texts(dataset[1]) == (["2", "2", "+", "1", "="], ["2", "3", "</s>"])
    longest = {"longest_question": 5, "longest_answer": 3, "longest_example": 8}
    assert dataset.about == {"truncated": 0, "unknown": 1, **longest}
    assert dataset.lengths(np.array([2, 0])).tolist() == [2 + 2, 4 + 2]
    assert (dataset.tokens.dtype, dataset.offsets.dtype) == (np.uint16, np.int64)
    assert [len(row["answer_ids"]) for row in dataset.__getitems__([2, 1])] == [2, 3]


def test_an_encoder_reads_its_end_token(tmp_path: Path) -> None:
    dataset = _encode(tmp_path, decoder_only=False)
    assert _texts(dataset[0]) == (["1", "+", "2", "=", "</s>"], ["3", "</s>"])


def test_a_long_question_loses_its_beginning(tmp_path: Path) -> None:
    dataset = _encode(tmp_path, max_length=2)
    assert _texts(dataset[1])[0] == ["1", "="]
    assert dataset.about["truncated"] == 2


def test_the_same_content_is_read_not_made_again(tmp_path: Path) -> None:
    def no_rows() -> list[Any]:
        raise AssertionError("read again")

    first = _encode(tmp_path)
    settings: dict[str, Any] = {"cache_dir": tmp_path, "key": "k", "decoder_only": True, "max_length": 64}
    again = encode_dataset(no_rows, _tokenizer(), **settings)
    assert again.folder == first.folder
    np.testing.assert_array_equal(again.tokens, first.tokens)


@pytest.mark.parametrize("name", ["tokens.npy", "offsets.npy", "about.json"])
def test_what_is_damaged_is_made_again(tmp_path: Path, name: str) -> None:
    folder = _encode(tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / name).write_bytes(before[name][:-9] + b"\x55" + before[name][-8:])
    said: list[str] = []
    again = _encode(tmp_path, log=said.append)
    assert len(said) == 1
    assert said[0].startswith(f"{folder}: damaged (")
    assert said[0].endswith("): tokenizing again")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert _texts(again[2]) == (["1", "<unk>"], ["1", "</s>"])


@pytest.mark.parametrize("change", [{"key": "other"}, {"decoder_only": False}, {"max_length": 3}])
def test_other_content_is_another_folder(tmp_path: Path, change: dict[str, Any]) -> None:
    assert _encode(tmp_path, **change).folder != _encode(tmp_path).folder


@pytest.mark.parametrize("workers", [1, 3])
def test_processes_give_the_same(tmp_path: Path, rows: Rows, tokenizer: Any, xval: Any, workers: int) -> None:
    alone = _encode(tmp_path / "alone", rows, tokenizer, workers=0)
    assert _same(_encode(tmp_path / "many", rows, tokenizer, workers=workers), alone)
    assert _same(_encode(tmp_path / "list", list(rows), tokenizer), alone)
    assert len(alone) == 4000
    if alone.values is None:
        assert _texts(alone[1234]) == (list("1234+2="), [*"1236", "</s>"])
        return
    assert len(alone.values) == len(alone.tokens)
    paper = [_encode(tmp_path / f"paper-{count}", rows, xval[True], workers=count) for count in (0, workers)]
    assert _same(*paper)


def test_a_worker_that_dies_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "PROGRAM", "import os, sys; os.read(int(sys.argv[1]), 100); sys.exit(9)")
    with pytest.raises(UserError, match=r"ended with status 9 .*; run again\."):
        _encode(tmp_path / "cache", workers=2)
    assert _finished(tmp_path / "cache") == []


def test_an_error_in_a_worker_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="tokenizing failed: KeyError: 'answer'"):
        _encode(tmp_path, rows=Rows(b'{"question": "1"}\n'), workers=1)


def test_a_large_vocabulary_needs_wider_ids(tmp_path: Path) -> None:
    tokenizer = _tokenizer()
    tokenizer.add_tokens([f"<{number}>" for number in range(2**16)])
    dataset = _encode(tmp_path, [{"question": "1<65000>", "answer": "2"}], tokenizer)
    assert dataset.tokens.dtype == np.int32
    assert dataset[0]["question_ids"].tolist() == tokenizer.convert_tokens_to_ids(["1", "<65000>"])


def test_another_reading_is_another_folder(tmp_path: Path, xval: dict[bool, Any]) -> None:
    row = [{"question": "1", "answer": "-2"}]
    first, paper = (_encode(tmp_path, row, xval[rule]) for rule in (False, True))
    assert first.folder != paper.folder
    assert first[0]["answer_values"].tolist() == [-2, 1]
    assert paper[0]["answer_values"].tolist()[-2:] == [2, 1]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_answer_without_a_number_is_one_line_from_any_process(
    tmp_path: Path, xval: dict[bool, Any], workers: int
) -> None:
    rows = [{"question": "What is 1?", "answer": "one"}]
    with pytest.raises(UserError, match=r"^the answer 'one' of 'What is 1\?' has no number"):
        _encode(tmp_path, rows, xval[False], workers=workers)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
