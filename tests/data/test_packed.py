"""Documents end to end in examples of equal length."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    for index in (-1, 3):
        with pytest.raises(IndexError):
            packed[index]
    batch = CausalCollator(0)([packed[index] for index in range(3)])
    assert batch["input_ids"].tolist() == [[END, 1, 2, 3], [END, 4, END, 5], [6, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2, 3, END], [4, END, 5, 6], [END, *[IGNORE_INDEX] * 3]]
    # Nothing but the end of the split is padded, and documents are not masked from each other.
    assert batch["attention_mask"].tolist() == [[1] * 4, [1] * 4, [1, 0, 0, 0]]


@given(documents=st.lists(st.lists(st.integers(0, 8), max_size=12), min_size=1, max_size=9), length=st.integers(1, 15))
def test_the_blocks_are_the_documents(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], length: int
) -> None:
    packed = Packed(write(tmp_path_factory.mktemp("packed") / "x", documents), length, END)
    stream = [token for ids in documents for token in [*ids, END]]
    blocks = read(packed)
    assert [token for _, labels in blocks for token in labels] == stream
    assert [before for (before,), _ in blocks] == [END, *stream][: len(stream)][::length]
    assert {len(labels) for _, labels in blocks[:-1]} <= {length}
    counted = dict.fromkeys(range(len(documents)), 0)
    for index, (_, labels) in enumerate(blocks):
        first, counts = packed.documents(index)
        assert sum(counts) == len(labels)
        assert min(counts) > 0
        for place, count in enumerate(counts):
            counted[first + place] += count
    assert counted == {index: len(ids) + 1 for index, ids in enumerate(documents)}
