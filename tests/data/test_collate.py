"""Padding, masks and the one shift, by hand; padding on either side gives the same loss."""

import math

import numpy as np
import pytest
import torch

from ntl.data.collate import (
    CausalCollator,
    MaskedNumberCollator,
    RegressionCollator,
    Seq2SeqCollator,
)

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
