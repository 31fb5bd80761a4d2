"""Answers of number heads, from stand-ins whose outputs are known."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ntl.config.decoding import NumberHeadConfig
from ntl.decoding import decode
from ntl.system.errors import Diverged

NUM, SLASH, END = 9, 5, 1
READ = {"regression": "read_sequences", "masked_number": "read_masks"}


class _Model(torch.nn.Module):
    """Says what ``outputs`` has for the first token of a question."""

    device, config = torch.device("cpu"), SimpleNamespace()

    def __init__(self, outputs: list[float], head: str) -> None:
        super().__init__()
        self.outputs, self.head = torch.tensor(outputs, dtype=torch.float64), head

    def forward(self, input_ids: torch.Tensor, **inputs: Any) -> SimpleNamespace:
        assert not self.training
        values = self.outputs[input_ids[:, 0]]
        if self.head == "regression":
            assert inputs == {"use_cache": False}
            return SimpleNamespace(logits=values[:, None])
        assert inputs == {}
        return SimpleNamespace(numbers=values)


class _Tokenizer:
    number_token_id = NUM

    def write(self, ids: list[int], numerals: list[str]) -> str:
        remaining = iter(numerals)
        return "".join(next(remaining) if token == NUM else {SLASH: "/", END: ""}[token] for token in ids)


def _collate(examples: list[Any]) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.tensor([[int(example["question_ids"][0])] for example in examples])}


def _examples(answers: list[list[tuple[int, float]]]) -> list[dict[str, np.ndarray]]:
    # Questions of different lengths, so that the order of the batches is not that of the answers.
    return [
        {
            "question_ids": np.array([index] * (1 + index % 3)),
            "answer_ids": np.array([token for token, _ in answer]),
            "answer_values": np.array([value for _, value in answer]),
        }
        for index, answer in enumerate(answers)
    ]


def _texts(model: _Model, examples: Any, decimals: int) -> list[str]:
    target = f"ntl.decoding.number_head.{READ[model.head]}"
    config = NumberHeadConfig(_target_=target, name="x", head=model.head, decimals=decimals, batch_size=2)
    answers = decode(config, model=model, tokenizer=_Tokenizer(), examples=examples, collate=_collate, max_new_tokens=7)
    assert all(answer.token_ids == [] for answer in answers)
    return [answer.text for answer in answers]


def test_a_regression_s_output_in_its_own_unit() -> None:
    """Halves are rounded to even; 2.675 is 2.67499... in float64."""
    values = [3.0, -0.125, 0.375, 2.675, 1e6, 1e22, 0.0, -0.001, -1e-9]
    model = _Model(values, "regression")
    examples = _examples([[(END, 1.0)]] * len(values))
    ends = ["1000000", "1" + "0" * 22, "0"]
    exact = ["3", "-0.125", "0.375", "2.675", *ends, "-0.001", "-0.000000001"]
    assert _texts(model, examples, 12) == exact
    assert _texts(model, examples, 2) == ["3", "-0.12", "0.38", "2.67", *ends, "0", "0"]
    assert _texts(model, examples, 0) == ["3", "0", "0", "3", *ends, "0", "0"]
    model.config = SimpleNamespace(target_mean=100.0, target_sd=8.0)  # standardized: 100 + 8 x output
    assert _texts(model, examples, 1)[:4] == ["124", "99", "103", "121.4"]


@pytest.mark.parametrize("head", READ)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_prediction_that_is_not_finite_is_no_answer(head: str, value: float) -> None:
    with pytest.raises(Diverged, match="NaN or infinite"):
        _texts(_Model([1.0, value], head), _examples([[(NUM, 99.0), (END, 1.0)]] * 2), 2)


def test_a_masked_number_comes_off_its_scale_and_is_rounded() -> None:
    values = [0, 1, -7, 2.5, 123456, -0.004, -0.006]
    outputs = [math.copysign(math.log1p(abs(value)), value) for value in values]
    model = _Model([*outputs, 800.0], "masked_number")
    examples = _examples([[(NUM, 99.0), (END, 1.0)]] * 8)
    expected = ["0", "1", "-7", "2.5", "123456", "0", "-0.01", ""]  # e^800 is no float64
    assert _texts(model, examples, 2) == expected


def test_other_numbers_of_the_answer_are_written_as_they_are() -> None:
    answers = [
        [(NUM, -0.1), (SLASH, 1.0), (NUM, 7.0), (END, 1.0)],
        [(NUM, 1e21), (SLASH, 1.0), (NUM, 7.0), (END, 1.0)],
        [(NUM, 2.0), (SLASH, 1.0), (NUM, 7.0), (END, 1.0)],
    ]
    model = _Model([math.log(4), math.log(4), 800.0], "masked_number")
    assert _texts(model, _examples(answers), 2) == ["-0.1/3", "1000000000000000000000/3", ""]
