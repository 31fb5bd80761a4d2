"""Documents end to end in examples of equal length."""

from pathlib import Path
from typing import Any

import pytest
from given import characters

from ntl.data import encode
from ntl.data.collate import IGNORE_INDEX, CausalCollator
from ntl.data.encode import EncodedDataset, encode_dataset

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
def test_by_hand(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_examples_as_long_as_a_token_and_as_all_documents(tmp_path: Path) -> None:
    stream = [1, 2, 3, 0, 4, 0, 5, 6, 0]
    alone = packed(tmp_path, 1)
    assert read(alone) == [([before], [label]) for before, label in zip([0, *stream], stream, strict=False)]
    assert [alone[at]["documents"].tolist() for at in range(9)] == [[n, 1] for n in (0, 0, 0, 0, 1, 1, 2, 2, 2)]
    assert read(packed(tmp_path, 9)) == read(packed(tmp_path, 99)) == [([0], stream)]
    for index in (-1, 9):
        with pytest.raises(IndexError):
            alone[index]


def test_weights_and_what_is_unknown_stay_with_their_labels(tmp_path: Path) -> None:
    found = packed(tmp_path, 4, ["12", "x345", "6"], weighted=True)
    assert [found[at]["answer_weights"].tolist() for at in range(3)] == [[0, 0, 0, 1], [1, 1, 1, 1], [2, 2]]
    assert found.about["unknown"] == 1
