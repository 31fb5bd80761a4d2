"""Examples in batches of similar length, answers in the order of the examples."""

from types import SimpleNamespace

import pytest
import torch

from ntl.config import DecodingConfig
from ntl.decoding.batches import Answer, in_batches


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_batches_are_sorted_and_answers_are_not(size: int) -> None:
    lengths = [2, 5, 1, 4, 3]
    examples = [{"question_ids": [place] * length} for place, length in enumerate(lengths)]
    model = SimpleNamespace(training=True, device="cpu", modes=[])
    model.eval = lambda: model.modes.append("eval")
    model.train = lambda mode: model.modes.append(mode)
    seen: list[int] = []
    done: list[int] = []

    def read(batch, inputs):
        assert torch.is_inference_mode_enabled()
        assert inputs["lengths"].tolist() == [len(example["question_ids"]) for example in batch]
        seen.extend(inputs["lengths"].tolist())
        return [Answer(str(example["question_ids"][0]), []) for example in batch]

    answers = in_batches(
        DecodingConfig(name="x", batch_size=size),
        model=model,
        examples=examples,
        collate=lambda batch: {"lengths": torch.tensor([len(example["question_ids"]) for example in batch])},
        progress=done.append,
        read=read,
    )
    assert [answer.text for answer in answers] == ["0", "1", "2", "3", "4"]
    assert seen == [5, 4, 3, 2, 1]
    assert done == [min(start + size, 5) for start in range(0, 5, size)]
    assert model.modes == ["eval", True]


def test_a_reader_that_loses_an_answer_is_found() -> None:
    model = torch.nn.Linear(1, 1)
    model.device = torch.device("cpu")
    with pytest.raises(ValueError, match="shorter"):
        in_batches(
            DecodingConfig(name="x"),
            model=model,
            examples=[{"question_ids": [1]}],
            collate=lambda batch: {"input_ids": torch.ones(1)},
            progress=lambda done: None,
            read=lambda batch, inputs: [],
        )
