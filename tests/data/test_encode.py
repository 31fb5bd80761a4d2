"""Token ids and values: by hand, against the tokenizer that a user would call, and when those on disk are reused."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given import characters
from tokenizers import normalizers

from ntl.config import UserError
from ntl.data import encode
from ntl.data.collate import IGNORE_INDEX, CausalCollator
from ntl.data.dataset import Example
from ntl.data.encode import EncodedDataset, encode_dataset, encode_rows
from ntl.tokenizers import load_tokenizer, train_tokenizer

PARTS = ("question", "answer")
ROWS = [
    {"id": "0", "question": "1+2=", "answer": "3"},
    {"id": "1", "question": "22+1=", "answer": "23"},
    {"id": "2", "question": "1?", "answer": "1"},
]


def _encode(folder: Path, rows: Any = ROWS, tokenizer: Any = None, **changes: Any) -> EncodedDataset:
    usual = {"cache_dir": folder, "key": "k", "decoder_only": True, "max_length": 64}
    return encode_dataset(lambda: rows, tokenizer or characters(), **{**usual, **changes})


@pytest.fixture(scope="module")
def xval(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Any]:
    """xVal's tokenizer, whose tokens have values, by ``paper_compat``."""
    folder = tmp_path_factory.mktemp("tokenizer") / "trained"
    train_tokenizer(["1+2= -"], folder, kind="xval", vocab_size=60)
    return {rule: load_tokenizer(folder, kind="xval", paper_compat=rule) for rule in (False, True)}


def _texts(example: dict[str, np.ndarray]) -> tuple[Any, ...]:
    tokenizer = characters()
    return tuple(tokenizer.convert_ids_to_tokens(example[name].tolist()) for name in ("question_ids", "answer_ids"))


def test_by_hand(tmp_path: Path) -> None:
    dataset = _encode(tmp_path)
    assert [len(each) for each in (dataset, dataset.first(2), dataset.first(0))] == [3, 2, 3]
    assert _texts(dataset[1]) == _texts(pickle.loads(pickle.dumps(dataset))[1])
    assert _texts(dataset[1]) == (["2", "2", "+", "1", "="], ["2", "3", "</s>"])
    longest = {"longest_question": 5, "longest_answer": 3, "longest_example": 8}
    assert dataset.about == {"truncated": 0, "unknown": 1, **longest}
    assert dataset.lengths(np.array([2, 0])).tolist() == [2 + 2, 4 + 2]
    assert dataset[0]["answer_ids"].dtype == np.uint16
    with pytest.raises(IndexError):
        dataset[3]
    encoder = _encode(tmp_path, decoder_only=False)  # which reads its end token
    assert _texts(encoder[0]) == (["1", "+", "2", "=", "</s>"], ["3", "</s>"])
    cut = _encode(tmp_path, max_length=2)  # a long question loses its beginning
    assert (_texts(cut[1])[0], cut.about["truncated"]) == (["1", "="], 2)


def test_the_same_content_is_read_not_made_again(tmp_path: Path, xval: dict[bool, Any]) -> None:
    def no_rows() -> Any:
        raise AssertionError("read again")

    first = _encode(tmp_path)
    again = encode_dataset(no_rows, characters(), cache_dir=tmp_path, key="k", decoder_only=True, max_length=64)
    assert again.folder == first.folder
    assert [*map(_texts, again)] == [*map(_texts, first)]
    changes: list[dict[str, Any]] = [{"key": "x"}, {"decoder_only": False}, {"max_length": 3}]
    changes += [{"tokenizer": xval[rule], "rows": [{"question": "1", "answer": "-2"}]} for rule in (False, True)]
    others = [_encode(tmp_path, **change) for change in changes]
    assert len({first.folder, *(other.folder for other in others)}) == 6
    assert [other[0]["answer_values"].tolist()[-2:] for other in others[3:]] == [[-2, 1], [2, 1]]


def test_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    folder = _encode(tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, content in before.items():
        (folder / name).write_bytes(content[:-1])
        assert _texts(_encode(tmp_path)[2]) == (["1", "<unk>"], ["1", "</s>"])
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, mount: Callable[..., None]) -> None:
    mount(tmp_path, "-t", "tmpfs", "-o", "size=256k", "tmpfs")
    rows = [{"question": str(10**200 + n), "answer": "1"} for n in range(2_000)]
    with pytest.raises(UserError, match=rf"^cannot write token ids to {tmp_path}: No space left on device"):
        _encode(tmp_path, rows, max_length=999)
    assert not [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")]
    assert len(_encode(tmp_path)) == 3


def test_what_is_there_is_read_in_a_read_only_folder(tmp_path: Path, make_read_only: Callable[[Path], None]) -> None:
    expected = [*map(_texts, _encode(tmp_path))]
    make_read_only(tmp_path)
    assert [*map(_texts, _encode(tmp_path))] == expected
    with pytest.raises(UserError, match=r"^cannot write token ids to .*: Read-only file system"):
        _encode(tmp_path, key="other")


def test_the_rows_encoded_at_a_time_do_not_matter(tmp_path: Path, xval: dict[bool, Any], monkeypatch) -> None:
    rows = [Example(id=f"train/{i}", question=f"{i}+{i % 7}=", answer=str(i + i % 7)) for i in range(100)]
    whole = _encode(tmp_path / "whole", rows, xval[False])
    monkeypatch.setattr(encode, "CHUNK", 7)
    pieces = _encode(tmp_path / "pieces", rows, xval[False])
    for one, other in zip(pieces, whole, strict=True):
        assert {name: values.tolist() for name, values in one.items()} == {
            name: values.tolist() for name, values in other.items()
        }
    assert pieces.about == whole.about
    assert len(whole) == 100
    some = whole.__getitems__([71, 3, 3])
    assert [_texts(each) for each in some] == [_texts(whole[index]) for index in (71, 3, 3)]


@pytest.mark.slow
def test_a_large_vocabulary_needs_wider_ids(tmp_path: Path) -> None:
    tokenizer = characters()
    tokenizer.add_tokens([f"<{number}>" for number in range(2**16)])
    dataset = _encode(tmp_path, [{"question": "1<65000>", "answer": "2"}], tokenizer)
    assert dataset[0]["question_ids"].dtype == np.int32
    assert dataset[0]["question_ids"].tolist() == tokenizer.convert_tokens_to_ids(["1", "<65000>"])


def test_values_stand_beside_the_numbers_and_one_beside_the_rest(tmp_path: Path, xval: dict[bool, Any]) -> None:
    rows = [{"question": "1.5 + -20=", "answer": "-3"}, {"question": "[NUM]1", "answer": "4 4"}]
    dataset = _encode(tmp_path, rows, xval[False], decoder_only=False)
    numbers = [
        [example[f"{part}_values"][example[f"{part}_ids"] == xval[False].number_token_id].tolist() for part in PARTS]
        for example in map(dataset.__getitem__, range(2))
    ]
    assert numbers == [[[1.5, -20], [-3]], [[1], [4, 4]]]
    for example in dataset:
        for part in PARTS:
            ids, values = example[f"{part}_ids"], example[f"{part}_values"]
            assert (len(values), values.dtype) == (len(ids), np.float64)
            assert {*values[ids != xval[False].number_token_id]} <= {1}
    # The first number of a question that is cut off takes its value with it.
    cut = dataset[0]["question_values"].tolist()[1:]
    short = _encode(tmp_path, rows, xval[False], decoder_only=False, max_length=len(cut))[0]
    assert short["question_values"].tolist() == cut
    assert [value for value in cut if value != 1] == [-20]


def test_a_target_stands_beside_the_end_of_the_answer(tmp_path: Path) -> None:
    rows = [{"question": "1+2=", "answer": "-1,003.5"}, {"question": "=", "answer": "2"}]
    dataset = _encode(tmp_path, rows, keep_target=True)
    assert [each["answer_values"].tolist() for each in dataset] == [[*[1] * 8, -1003.5], [1, 2]]
    assert dataset.last_values().tolist() == [-1003.5, 2]


def test_numbers_in_tokens_of_their_own(tmp_path: Path) -> None:
    texts = ["What is -12.5 times (3/2)?", "x=1,234.5 and 007", "0.0000000000005 and 1e5"]
    tokenizer = train_tokenizer(texts, tmp_path / "rt", kind="rt")
    rows = [{"question": text, "answer": text} for text in texts]
    found = encode_rows(rows, tokenizer, decoder_only=False, max_length=64)[0]
    for part in PARTS:
        assert [example[f"{part}_ids"].tolist() for example in found] == tokenizer(texts).input_ids
    with pytest.raises(UserError, match="has 21 digits before its point"):
        encode_rows([{"question": "1" * 21, "answer": "2"}], tokenizer, decoder_only=False, max_length=64)


def test_what_cannot_be_encoded_is_one_line(xval: dict[bool, Any]) -> None:
    silent = characters()
    silent.backend_tokenizer.normalizer = normalizers.Replace("\u200b", "")
    target = {"tokenizer": characters(), "keep_target": True}
    for question, answer, how, said in (
        ("\u200b", "3", {"tokenizer": silent}, "this question as no token"),
        ("What is 1?", "one", {"tokenizer": xval[False]}, "has no number"),
        *(("=", answer, target, "is no number: take another model") for answer in ("x", "1 2", "", "1e400")),
    ):
        line = f"^the answer '{answer}' of {re.escape(repr(question))}.* {said}"
        with pytest.raises(UserError, match=line):
            encode_rows([{"question": question, "answer": answer}], decoder_only=True, max_length=9, **how)


# ---- documents end to end in examples of equal length

END, ONE = 1, 4  # the ids of the end token and of "1"
TEXTS = ["123", "4", "56"]


def packed(folder: Path, length: int, texts: list[str] = TEXTS, **settings: Any) -> EncodedDataset:
    rows = [{"question": "", "answer": text, "weight": str(at)} for at, text in enumerate(texts)]
    settings = {"key": "k", "cache_dir": folder, "decoder_only": True, "max_length": length, **settings}
    return encode_dataset(lambda: rows, characters(), packed=True, **settings)


def read(found: EncodedDataset) -> list[tuple[list[int], list[int]]]:
    """Of each example the token before its labels, and these; digits as numbers, the end token as 0."""

    def digits(ids: Any) -> list[int]:
        return [max(int(token) - ONE + 1, 0) for token in ids]

    return [(digits(each["question_ids"]), digits(each["answer_ids"])) for each in found]


@pytest.mark.parametrize("chunk", [5000, 1, 2])
def test_packed_documents_by_hand(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK", chunk)
    found = packed(tmp_path, 4)
    assert read(found) == [([0], [1, 2, 3, 0]), ([0], [4, 0, 5, 6]), ([6], [0])]
    assert [found[at]["documents"].tolist() for at in range(3)] == [[0, 4], [1, 2, 2], [2, 1]]
    assert found.lengths(range(3)).tolist() == [5, 5, 2]
    longest = {"longest_question": 1, "longest_answer": 4, "longest_example": 5}
    assert found.about == {"truncated": 0, "unknown": 0, **longest}
    assert CausalCollator(0).longest_input(found.about) == 4
    batch = CausalCollator(0)([found[at] for at in range(3)])
    first, second = ([ONE + digit for digit in digits] for digits in ((0, 1, 2), (4, 5)))
    assert batch["input_ids"].tolist() == [[END, *first], [END, ONE + 3, END, second[0]], [second[1], 0, 0, 0]]
    assert batch["labels"].tolist() == [[*first, END], [ONE + 3, END, *second], [END, *[IGNORE_INDEX] * 3]]
    # Nothing but the end of the split is padded, and documents are not masked from each other.
    assert batch["attention_mask"].tolist() == [[1] * 4, [1] * 4, [1, 0, 0, 0]]
