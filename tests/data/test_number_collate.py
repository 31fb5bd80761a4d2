"""Batches of models that predict a value, by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ntl.data.number_collate import (
    MaskedNumberCollator,
    RegressionCollator,
    masked_number_collator,
    regression_collator,
    signed_ln,
)

PAD, END, NUM, MASK, TEXT = 0, 1, 9, 8, 5


def _example(question: dict[str, list[float]], answer: dict[str, list[float]]) -> dict[str, np.ndarray]:
    return {
        "question_ids": np.array(question["ids"], dtype=np.uint16),
        "question_values": np.array(question["values"]),
        "answer_ids": np.array(answer["ids"], dtype=np.uint16),
        "answer_values": np.array(answer["values"]),
    }


# "3 x -7" -> "20"; "x" -> "1/2" with two numbers.
FIRST = _example({"ids": [NUM, TEXT, NUM], "values": [3.0, 1.0, -7.0]}, {"ids": [NUM, END], "values": [20.0, 1.0]})
SECOND = _example({"ids": [TEXT], "values": [1.0]}, {"ids": [NUM, TEXT, NUM, END], "values": [1.0, 1.0, -2.0, 1.0]})


def ln(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)


@pytest.fixture
def masked() -> MaskedNumberCollator:
    return MaskedNumberCollator(PAD, MASK, NUM)


def test_the_last_number_of_the_answer_is_masked(masked: MaskedNumberCollator) -> None:
    batch = masked([FIRST, SECOND])
    assert batch["input_ids"].tolist() == [[NUM, TEXT, NUM, MASK, END], [TEXT, NUM, TEXT, MASK, END]]
    assert batch["number_positions"].tolist() == [3, 3]
    assert batch["labels"].tolist() == [NUM, NUM]
    assert batch["attention_mask"].tolist() == [[1] * 5, [1] * 5]
    expected = [[ln(3), 1, ln(-7), 1, 1], [1, ln(1), 1, 1, 1]]
    torch.testing.assert_close(batch["number_values"], torch.tensor(expected))
    torch.testing.assert_close(batch["number_labels"], torch.tensor([ln(20), ln(-2)]))
    assert {name: tensor.dtype for name, tensor in batch.items()} == {
        "input_ids": torch.int64,
        "attention_mask": torch.int64,
        "number_values": torch.float32,
        "number_positions": torch.int64,
        "labels": torch.int64,
        "number_labels": torch.float32,
    }


def test_padding_stands_on_the_right_and_counts_one(masked: MaskedNumberCollator) -> None:
    short = _example({"ids": [TEXT], "values": [1.0]}, {"ids": [NUM, END], "values": [0.0, 1.0]})
    batch = masked([short, FIRST])
    assert batch["input_ids"].tolist()[0] == [TEXT, MASK, END, PAD, PAD]
    assert batch["attention_mask"].tolist()[0] == [1, 1, 1, 0, 0]
    assert batch["number_values"].tolist()[0] == [1, 1, 1, 1, 1]
    assert batch["number_positions"].tolist() == [1, 3]
    assert batch["number_labels"].tolist()[0] == 0


def test_a_prediction_sees_nothing_of_what_it_predicts(masked: MaskedNumberCollator) -> None:
    other = _example({"ids": [NUM, TEXT, NUM], "values": [3.0, 1.0, -7.0]}, {"ids": [NUM, END], "values": [-1e9, 1.0]})
    first, second = masked.prompts([FIRST]), masked.prompts([other])
    assert set(first) == {"input_ids", "attention_mask", "number_values", "number_positions"}
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_examples_stay_as_they_are(masked: MaskedNumberCollator) -> None:
    before = {name: array.copy() for name, array in FIRST.items()}
    masked([FIRST])
    assert all(np.array_equal(FIRST[name], array) for name, array in before.items())


def test_a_regression_reads_the_question_alone() -> None:
    collator = RegressionCollator(PAD)
    targets = [FIRST | {"answer_values": np.array([1.0, -3.25])}, SECOND | {"answer_values": np.array([1, 1, 1, 1e6])}]
    batch = collator(targets)
    assert batch["input_ids"].tolist() == [[NUM, TEXT, NUM], [TEXT, PAD, PAD]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (batch["labels"].tolist(), batch["labels"].dtype) == ([-3.25, 1e6], torch.float32)
    assert set(collator.prompts(targets)) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize(("value", "scaled"), [(0, 0), (math.e - 1, 1), (1 - math.e, -1), (1e300, math.log(10) * 300)])
def test_the_scale(value: float, scaled: float) -> None:
    assert signed_ln(np.array([value]))[0] == pytest.approx(scaled, rel=1e-14)


def test_the_longest_input(masked: MaskedNumberCollator) -> None:
    about = {"longest_question": 5, "longest_answer": 3, "longest_example": 7}
    assert masked.longest_input(about) == 7
    assert RegressionCollator(PAD).longest_input(about) == 5


def test_they_are_made_for_a_model_and_its_tokenizer() -> None:
    tokenizer = SimpleNamespace(pad_token_id=PAD, mask_token_id=MASK, number_token_id=NUM)
    assert masked_number_collator(None, tokenizer) == MaskedNumberCollator(PAD, MASK, NUM)
    assert regression_collator(SimpleNamespace(pad_token_id=4), tokenizer) == RegressionCollator(4)
