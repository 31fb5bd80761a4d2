"""Token ids and values: by hand, against the tokenizer that a user would call, and when those on disk are reused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given import MAKES as GIVEN
from given import characters
from hypothesis import given
from hypothesis import strategies as st
from test_load_published import MAKES, save
from tokenizers import Tokenizer, normalizers

from ntl.config import UserError
from ntl.data import encode
from ntl.data.dataset import Example
from ntl.data.encode import WordEncoder, encode_dataset, encode_rows
from ntl.data.encoded import EncodedDataset
from ntl.tokenizers import load_tokenizer, train_tokenizer
from ntl.tokenizers.load import text_backend

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


def test_token_ids_by_hand(tmp_path: Path) -> None:
    dataset = _encode(tmp_path)
    assert [len(each) for each in (dataset, dataset.first(2), dataset.first(0))] == [3, 2, 3]
    assert _texts(dataset[1]) == _texts(pickle.loads(pickle.dumps(dataset))[1])
    assert _texts(dataset[1]) == (["2", "2", "+", "1", "="], ["2", "3", "</s>"])
    longest = {"longest_question": 5, "longest_answer": 3, "longest_example": 8}
    assert dataset.about == {"truncated": 0, "unknown": 1, **longest}
    assert dataset.lengths(np.array([2, 0])).tolist() == [2 + 2, 4 + 2]
    assert (dataset.tokens.dtype, dataset.offsets.dtype) == (np.uint16, np.int64)
    with pytest.raises(IndexError):
        dataset[3]
    assert len(_encode(tmp_path, [], key="nothing")) == 0
    encoder = _encode(tmp_path, decoder_only=False)  # which reads its end token
    assert _texts(encoder[0]) == (["1", "+", "2", "=", "</s>"], ["3", "</s>"])
    cut = _encode(tmp_path, max_length=2)  # a long question loses its beginning
    assert (_texts(cut[1])[0], cut.about["truncated"]) == (["1", "="], 2)


def test_a_question_without_a_token_is_one_line() -> None:
    tokenizer = characters()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\u200b", "")
    row = {"question": "\u200b", "answer": "3"}
    with pytest.raises(UserError, match=r"the answer '3' of '\\u200b': the tokenizer writes this question as no token"):
        encode_rows([row], tokenizer, decoder_only=True, max_length=9)


def test_the_same_content_is_read_not_made_again(tmp_path: Path) -> None:
    def no_rows() -> list[Any]:
        raise AssertionError("read again")

    first = _encode(tmp_path)
    again = encode_dataset(no_rows, characters(), cache_dir=tmp_path, key="k", decoder_only=True, max_length=64)
    assert again.folder == first.folder
    np.testing.assert_array_equal(again.tokens, first.tokens)
    others = [
        _encode(tmp_path, **change).folder for change in ({"key": "x"}, {"decoder_only": False}, {"max_length": 3})
    ]
    assert len({first.folder, *others}) == 4


def test_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    folder = _encode(tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, content in before.items():
        (folder / name).write_bytes(content[:-1])
        assert _texts(_encode(tmp_path)[2]) == (["1", "<unk>"], ["1", "</s>"])
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_rows_encoded_at_a_time_do_not_matter(
    tmp_path: Path, xval: dict[bool, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Example(id=f"train/{i}", question=f"{i}+{i % 7}=", answer=str(i + i % 7)) for i in range(100)]
    whole = _encode(tmp_path / "whole", rows, xval[False])
    monkeypatch.setattr(encode, "CHUNK", 7)
    pieces = _encode(tmp_path / "pieces", rows, xval[False])
    contents = [{path.name: path.read_bytes() for path in each.folder.iterdir()} for each in (pieces, whole)]
    assert contents[0] == contents[1]
    assert len(whole) == 100


@pytest.mark.slow
def test_a_large_vocabulary_needs_wider_ids(tmp_path: Path) -> None:
    tokenizer = characters()
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


def test_an_answer_without_a_number_is_one_line(tmp_path: Path, xval: dict[bool, Any]) -> None:
    rows = [{"question": "What is 1?", "answer": "one"}]
    with pytest.raises(UserError, match=r"^the answer 'one' of 'What is 1\?' has no number"):
        _encode(tmp_path, rows, xval[False])
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_values_stand_beside_the_numbers_and_one_beside_the_rest(tmp_path: Path, xval: dict[bool, Any]) -> None:
    rows = [{"question": "1.5 + -20=", "answer": "-3"}, {"question": "[NUM]1", "answer": "4 4"}]
    dataset = _encode(tmp_path, rows, xval[False], decoder_only=False)
    numbers = [
        [example[f"{part}_values"][example[f"{part}_ids"] == xval[False].number_token_id].tolist() for part in PARTS]
        for example in map(dataset.__getitem__, range(2))
    ]
    assert numbers == [[[1.5, -20], [-3]], [[1], [4, 4]]]
    assert dataset.values is not None
    assert (len(dataset.values), dataset.values.dtype) == (len(dataset.tokens), np.float64)
    assert set(dataset.values[dataset.tokens != xval[False].number_token_id]) == {1}
    # The first number of a question that is cut off takes its value with it.
    cut = dataset[0]["question_values"].tolist()[1:]
    short = _encode(tmp_path, rows, xval[False], decoder_only=False, max_length=len(cut))[0]
    assert short["question_values"].tolist() == cut
    assert [value for value in cut if value != 1] == [-20]


def test_a_target_stands_beside_the_end_of_the_answer(tmp_path: Path) -> None:
    rows = [{"question": "1+2=", "answer": "-1,003.5"}, {"question": "=", "answer": "2"}]
    dataset = _encode(tmp_path, rows, keep_target=True)
    assert dataset.values is not None
    assert dataset.values.tolist() == [*[1] * 12, -1003.5, 1, 1, 2]
    for answer in ("x", "1 2", "", "1e400"):
        with pytest.raises(UserError, match=r"the answer .* of '=' is no number: take another model"):
            encode_rows(
                [{"question": "=", "answer": answer}], characters(), decoder_only=True, max_length=9, keep_target=True
            )


def test_numbers_in_tokens_of_their_own(tmp_path: Path) -> None:
    texts = ["What is -12.5 times (3/2)?", "x=1,234.5 and 007", "0.0000000000005 and 1e5"]
    tokenizer = train_tokenizer(texts, tmp_path / "rt", kind="rt")
    rows = [{"question": text, "answer": text} for text in texts]
    found = encode_rows(rows, tokenizer, decoder_only=False, max_length=64)
    for part in PARTS:
        assert [example[f"{part}_ids"].tolist() for example in found] == tokenizer(texts).input_ids
    with pytest.raises(UserError, match="has 21 digits before its point"):
        encode_rows([{"question": "1" * 21, "answer": "2"}], tokenizer, decoder_only=False, max_length=64)


# Token ids from those of words are those of the whole text, with every make of tokenizer.


# Of the same kinds, with whatever could stand across a space or change it.
PIECES = ["the", "12", " ", "  ", "\t", "\n", "1.5e-3", "-15.67", "</s>", "a,b", "é", "ﬁ", " ", "＋", "́", "'s", "?"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, WordEncoder]:
    with_token, with_normalizer = GIVEN["smollm2"](), GIVEN["smollm2"]()
    with_token.add_tokens(["12 the"])
    with_normalizer.backend_tokenizer.normalizer = normalizers.Replace(" t", "t")
    made = {name: make() for name, make in GIVEN.items()} | {"token": with_token, "normalizer": with_normalizer}
    found = {f"{name} given": text_backend(each) for name, each in made.items()}
    for name, make in MAKES.items():
        folder = save(make(), tmp_path_factory.mktemp(name), {"llama2": "llama"}.get(name, name))
        found |= {f"{name} {kind}": text_backend(load_tokenizer(folder, kind)) for kind in ("digit", "default")}
    return {name: WordEncoder(backend) for name, backend in found.items()}


def of_whole(backend: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [each.ids for each in backend.encode_batch_fast(texts, add_special_tokens=False)]


@given(texts=st.lists(TEXTS, max_size=4))
def test_the_ids_of_the_whole_text(encoders: dict[str, WordEncoder], texts: list[str]) -> None:
    for name, encoder in encoders.items():
        assert encoder(texts) == encoder(texts) == of_whole(encoder.backend, texts), name


def test_which_are_known_to_divide_at_spaces(encoders: dict[str, WordEncoder]) -> None:
    divided = {"gpt2 digit", "gpt2 default", "roberta default", "t5 digit", "t5 default", "smollm2 given"}
    assert {name for name, each in encoders.items() if each.divides} == divided
    encoder = encoders["t5 digit"]
    encoder(["the 12 the the"])
    assert {"the", " the", " 12"} <= encoder.known.keys()
