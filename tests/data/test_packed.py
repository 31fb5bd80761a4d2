"""Documents end to end in examples of equal length."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from ntl.data.collate import IGNORE_INDEX, CausalCollator
from ntl.data.encode import Block, write_encoded
from ntl.data.encoded import Packed

END = 9


def write(folder: Path, documents: list[list[int]]) -> Path:
    """As the documents are encoded: without a question, and with an end token."""
    flat = [token for ids in documents for token in [*ids, END]]
    sizes = np.array([size for ids in documents for size in (0, len(ids) + 1)], dtype=np.int64)
    folder.mkdir()
    block = Block(sizes, {"tokens": np.array(flat, dtype=np.uint16)}, {})
    write_encoded(folder, [block], {"dtype": "<u2", "has_values": False})
    return folder


def read(packed: Packed) -> list[tuple[list[int], list[int]]]:
    return [
        (each["question_ids"].tolist(), each["answer_ids"].tolist())
        for each in map(packed.__getitem__, range(len(packed)))
    ]


def test_by_hand(tmp_path: Path) -> None:
    packed = Packed(write(tmp_path / "x", [[1, 2, 3], [4], [5, 6]]), 4, END)
    assert read(packed) == [([END], [1, 2, 3, END]), ([END], [4, END, 5, 6]), ([6], [END])]
    assert [packed.documents(index) for index in range(3)] == [(0, [4]), (1, [2, 2]), (2, [1])]
    assert packed.lengths(np.arange(3)).tolist() == [5, 5, 2]
    assert packed.about == {
        **{"truncated": 0, "unknown": 0, "longest_question": 1, "longest_answer": 4, "longest_example": 5}
    }
    assert CausalCollator(0).longest_input(packed.about) == 4
    assert read(pickle.loads(pickle.dumps(packed))) == read(packed)
    alone = Packed(packed.folder, 1, END)  # as long as a token
    stream = [1, 2, 3, END, 4, END, 5, 6, END]
    assert read(alone) == [([before], [label]) for before, label in zip([END, *stream], stream, strict=False)]
    assert [alone.documents(index) for index in range(9)] == [(n, [1]) for n in (0, 0, 0, 0, 1, 1, 2, 2, 2)]
    for index in (-1, 3):
        with pytest.raises(IndexError):
            packed[index]
    batch = CausalCollator(0)([packed[index] for index in range(3)])
    assert batch["input_ids"].tolist() == [[END, 1, 2, 3], [END, 4, END, 5], [6, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2, 3, END], [4, END, 5, 6], [END, *[IGNORE_INDEX] * 3]]
    # Nothing but the end of the split is padded, and documents are not masked from each other.
    assert batch["attention_mask"].tolist() == [[1] * 4, [1] * 4, [1, 0, 0, 0]]
