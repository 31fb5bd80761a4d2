"""Answers in the order of the examples, whatever order they are decoded in."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ntl.config import DecodingConfig
from ntl.decoding.batches import Answer, Example, Read, decode

LENGTHS = [2, 5, 1, 5, 3]


class Model(torch.nn.Module):
    device = torch.device("cpu")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """``built.read`` is the decoding that a config makes, with the arguments ``built.given``."""
    made = SimpleNamespace(given=[])

    def build(config: DecodingConfig, **runtime: Any) -> Read:
        made.given.append(runtime)
        return made.read

    monkeypatch.setattr("ntl.decoding.batches.build", build)
    return made


def run(built: SimpleNamespace, batch_size: int, model: torch.nn.Module | None = None) -> SimpleNamespace:
    seen = SimpleNamespace(batches=[], done=[], answers=[], model=model or Model())

    def read(batch: Sequence[Example], inputs: object) -> list[Answer]:
        assert not seen.model.training
        assert torch.is_inference_mode_enabled()
        seen.batches.append([len(example["question_ids"]) for example in batch])
        return [Answer(example["id"], []) for example in batch]

    examples = [{"id": str(index), "question_ids": [7] * length} for index, length in enumerate(LENGTHS)]
    built.read = read
    seen.answers = decode(
        DecodingConfig(name="x", batch_size=batch_size),
        model=seen.model,
        tokenizer="the tokenizer",
        examples=examples,
        collate=lambda batch: {"input_ids": torch.zeros(len(batch), 1)},
        progress=seen.done.append,
        max_new_tokens=7,
    )
    return seen


@pytest.mark.parametrize(
    ("size", "batches", "done"), [(2, [[5, 5], [3, 2], [1]], [2, 4, 5]), (99, [[5, 5, 3, 2, 1]], [5])]
)
def test_long_ones_first_and_answers_in_order(built, size: int, batches: list[list[int]], done: list[int]) -> None:
    seen = run(built, size)
    assert built.given == [{"model": seen.model, "tokenizer": "the tokenizer", "max_new_tokens": 7}]
    assert seen.batches == batches
    assert seen.done == done
    assert [answer.text for answer in seen.answers] == ["0", "1", "2", "3", "4"]
