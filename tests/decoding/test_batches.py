"""Answers in the order of the examples, whatever order they are decoded in."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from ntl.config import DecodingConfig
from ntl.decoding.batches import Answer, Example, decode


def test_long_ones_first_and_answers_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, done = [], []
    model = torch.nn.Module()
    model.device = torch.device("cpu")

    def read(batch: Sequence[Example], inputs: object) -> list[Answer]:
        assert not model.training
        assert torch.is_inference_mode_enabled()
        batches.append([len(example["question_ids"]) for example in batch])
        return [Answer(example["id"], []) for example in batch]

    monkeypatch.setattr("ntl.decoding.batches.build", lambda config, **given: read)
    answers = decode(
        DecodingConfig(name="x", batch_size=2),
        model=model,
        tokenizer=SimpleNamespace(),
        examples=[{"id": str(at), "question_ids": [7] * length} for at, length in enumerate([2, 5, 1, 5, 3])],
        collate=lambda batch: {"input_ids": torch.zeros(len(batch), 1)},
        progress=done.append,
        max_new_tokens=7,
    )
    assert batches == [[5, 5], [3, 2], [1]]
    assert done == [2, 4, 5]
    assert [answer.text for answer in answers] == ["0", "1", "2", "3", "4"]
    assert model.training  # as it was before
