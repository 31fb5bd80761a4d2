"""Padding, masks and the one shift, by hand; padding on either side gives the same loss."""

import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from ntl.data.collate import (
    IGNORE_INDEX,
    CausalCollator,
    MaskedNumberCollator,
    RegressionCollator,
    Seq2SeqCollator,
)
from ntl.data.encode import Block, write_encoded
from ntl.data.encoded import Packed

PAD, EOS, START = 0, 1, 9


def _example(question: list[int], answer: list[int]) -> dict[str, np.ndarray]:
    return {"question_ids": np.array(question, np.int32), "answer_ids": np.array([*answer, EOS], np.int32)}


EXAMPLES = [_example([5, 6, 7], [3]), _example([5], [2, 4])]


def test_seq2seq_by_hand() -> None:
    batch = {name: ids.tolist() for name, ids in Seq2SeqCollator(PAD, START)(EXAMPLES).items()}
    assert batch == {
        "input_ids": [[5, 6, 7], [5, 0, 0]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "decoder_input_ids": [[9, 3, 0], [9, 2, 4]],
        "labels": [[3, 1, -100], [2, 4, 1]],
    }


def test_causal_by_hand() -> None:
    batch = {name: ids.tolist() for name, ids in CausalCollator(PAD)(EXAMPLES).items()}
    assert batch == {
        "input_ids": [[5, 6, 7, 3], [5, 2, 4, 0]],
        "attention_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
        "labels": [[-100, -100, 3, 1], [2, 4, 1, -100]],
    }
    prompts = {name: ids.tolist() for name, ids in CausalCollator(PAD).prompts(EXAMPLES).items()}
    assert prompts == {"input_ids": [[5, 6, 7], [0, 0, 5]], "attention_mask": [[1, 1, 1], [0, 0, 1]]}


END, NUM, MASK, TEXT = 1, 9, 8, 5
Tokens = list[tuple[int, float]]


def _with_values(question: Tokens, answer: Tokens) -> dict[str, np.ndarray]:
    """An example from ids and values; an end token stands behind the answer."""
    example = {}
    for name, tokens in (("question", question), ("answer", [*answer, (END, 1.0)])):
        ids, values = zip(*tokens, strict=True)
        example |= {f"{name}_ids": np.array(ids, dtype=np.uint16), f"{name}_values": np.array(values)}
    return example


# "3 x -7" -> "20"; "x" -> "1/-2" with two numbers.
FIRST = _with_values([(NUM, 3.0), (TEXT, 1.0), (NUM, -7.0)], [(NUM, 20.0)])
SECOND = _with_values([(TEXT, 1.0)], [(NUM, 1.0), (TEXT, 1.0), (NUM, -2.0)])


def ln(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)


@pytest.fixture
def masked() -> MaskedNumberCollator:
    return MaskedNumberCollator(PAD, MASK, NUM)


def test_the_last_number_of_the_answer_is_masked(masked: MaskedNumberCollator) -> None:
    batch = masked([FIRST, SECOND, _with_values([(TEXT, 1.0)], [(NUM, 0.0)])])
    expected = [[NUM, TEXT, NUM, MASK, END], [TEXT, NUM, TEXT, MASK, END], [TEXT, MASK, END, PAD, PAD]]
    assert batch["input_ids"].tolist() == expected
    assert batch["number_positions"].tolist() == [3, 3, 1]
    assert batch["labels"].tolist() == [NUM, NUM, NUM]
    assert batch["attention_mask"].tolist() == [[1] * 5, [1] * 5, [1, 1, 1, 0, 0]]
    expected = [[ln(3), 1, ln(-7), 1, 1], [1, ln(1), 1, 1, 1], [1] * 5]
    torch.testing.assert_close(batch["number_values"], torch.tensor(expected))
    torch.testing.assert_close(batch["number_labels"], torch.tensor([ln(20), ln(-2), 0]))
    whole = ("input_ids", "attention_mask", "number_positions", "labels")
    dtypes = dict.fromkeys(whole, torch.int64) | dict.fromkeys(("number_values", "number_labels"), torch.float32)
    assert {name: tensor.dtype for name, tensor in batch.items()} == dtypes


def test_a_regression_reads_the_question_alone() -> None:
    collator = RegressionCollator(PAD)
    targets = [FIRST | {"answer_values": np.array([1.0, -3.25])}, SECOND | {"answer_values": np.array([1, 1, 1, 1e6])}]
    batch = collator(targets)
    assert batch["input_ids"].tolist() == [[NUM, TEXT, NUM], [TEXT, PAD, PAD]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (batch["labels"].tolist(), batch["labels"].dtype) == ([-3.25, 1e6], torch.float32)
    assert set(collator.prompts(targets)) == {"input_ids", "attention_mask"}


def test_the_longest_input(masked: MaskedNumberCollator) -> None:
    about = {"longest_question": 5, "longest_answer": 3, "longest_example": 7}
    assert masked.longest_input(about) == 7
    assert RegressionCollator(PAD).longest_input(about) == 5
    assert CausalCollator(PAD).longest_input(about) == 6  # it never reads the end of the answer


# Documents end to end in examples of equal length.


LAST = 9


def written(folder: Path, documents: list[list[int]]) -> Path:
    """As the documents are encoded: without a question, and with an end token."""
    flat = [token for ids in documents for token in [*ids, LAST]]
    sizes = np.array([size for ids in documents for size in (0, len(ids) + 1)], dtype=np.int64)
    folder.mkdir()
    block = Block(sizes, {"tokens": np.array(flat, dtype=np.uint16)}, {})
    write_encoded(folder, [block], {"dtype": "<u2", "has_values": False})
    return folder


def blocks(packed: Packed) -> list[tuple[list[int], list[int]]]:
    return [
        (each["question_ids"].tolist(), each["answer_ids"].tolist())
        for each in map(packed.__getitem__, range(len(packed)))
    ]


def test_documents_end_to_end_by_hand(tmp_path: Path) -> None:
    packed = Packed(written(tmp_path / "x", [[1, 2, 3], [4], [5, 6]]), 4, LAST)
    assert blocks(packed) == [([LAST], [1, 2, 3, LAST]), ([LAST], [4, LAST, 5, 6]), ([6], [LAST])]
    assert [packed.documents(index) for index in range(3)] == [(0, [4]), (1, [2, 2]), (2, [1])]
    assert packed.lengths(np.arange(3)).tolist() == [5, 5, 2]
    assert packed.about == {
        **{"truncated": 0, "unknown": 0, "longest_question": 1, "longest_answer": 4, "longest_example": 5}
    }
    assert CausalCollator(0).longest_input(packed.about) == 4
    assert blocks(pickle.loads(pickle.dumps(packed))) == blocks(packed)
    alone = Packed(packed.folder, 1, LAST)  # as long as a token
    stream = [1, 2, 3, LAST, 4, LAST, 5, 6, LAST]
    assert blocks(alone) == [([before], [label]) for before, label in zip([LAST, *stream], stream, strict=False)]
    assert [alone.documents(index) for index in range(9)] == [(n, [1]) for n in (0, 0, 0, 0, 1, 1, 2, 2, 2)]
    for index in (-1, 3):
        with pytest.raises(IndexError):
            packed[index]
    batch = CausalCollator(0)([packed[index] for index in range(3)])
    assert batch["input_ids"].tolist() == [[LAST, 1, 2, 3], [LAST, 4, LAST, 5], [6, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2, 3, LAST], [4, LAST, 5, 6], [LAST, *[IGNORE_INDEX] * 3]]
    # Nothing but the end of the split is padded, and documents are not masked from each other.
    assert batch["attention_mask"].tolist() == [[1] * 4, [1] * 4, [1, 0, 0, 0]]
