"""Answers in the order of the examples, whatever the order they are read in."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ntl.config import DecodingConfig
from ntl.decoding.batches import Example, batches, in_batches
from ntl.decoding.journal import Answer, Journal

LENGTHS = [2, 5, 1, 5, 3]
IDS = [["1", "3"], ["4", "0"], ["2"]]


class Model(torch.nn.Module):
    device = torch.device("cpu")


def run(batch_size: int, model: torch.nn.Module | None = None, journal: Journal | None = None) -> SimpleNamespace:
    seen = SimpleNamespace(batches=[], done=[], answers=[], model=model or Model())

    def read(batch: Sequence[Example], inputs: object) -> list[Answer]:
        assert not seen.model.training
        assert torch.is_inference_mode_enabled()
        seen.batches.append([len(example["question_ids"]) for example in batch])
        return [Answer(example["id"], []) for example in batch]

    examples = [{"id": str(index), "question_ids": [7] * length} for index, length in enumerate(LENGTHS)]
    seen.answers = in_batches(
        DecodingConfig(name="x", batch_size=batch_size),
        model=seen.model,
        examples=examples,
        collate=lambda batch: {"input_ids": torch.zeros(len(batch), 1)},
        progress=seen.done.append,
        journal=journal,
        read=read,
    )
    return seen


@pytest.mark.parametrize(
    ("size", "batches", "done"),
    [(2, [[5, 5], [3, 2], [1]], [2, 4, 5]), (5, [[5, 5, 3, 2, 1]], [5]), (99, [[5, 5, 3, 2, 1]], [5])],
)
def test_long_ones_first_and_answers_in_order(size: int, batches: list[list[int]], done: list[int]) -> None:
    seen = run(size)
    assert seen.batches == batches
    assert seen.done == done
    assert [answer.text for answer in seen.answers] == ["0", "1", "2", "3", "4"]


def test_batches_are_those_that_are_read() -> None:
    examples = [{"question_ids": [7] * length} for length in LENGTHS]
    assert batches(examples, 2) == [[int(name) for name in batch] for batch in IDS]
    assert batches([], 2) == []


@pytest.mark.parametrize("kept", [(), (0,), (0, 1), (0, 1, 2), (1,), (2, 0)])
def test_batches_of_a_journal_are_not_read_again(kept: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "answers"
    whole = run(2, journal=Journal(path, {}, IDS))
    head, *lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    path.write_bytes(b"".join([head, *(lines[batch] for batch in kept)]))
    seen = run(2, journal=Journal(path, {}, IDS))
    assert seen.batches == [batch for number, batch in enumerate(whole.batches) if number not in kept]
    assert seen.done[-1:] == ([5] if len(kept) < 3 else [])
    assert seen.answers == whole.answers
    assert sorted(path.read_bytes().splitlines(keepends=True)) == sorted([head, *lines])


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training: bool) -> None:
    assert run(2, Model().train(training)).model.training is training


def test_a_reader_that_loses_an_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        in_batches(
            DecodingConfig(name="x"),
            model=Model(),
            examples=[{"question_ids": [1]}, {"question_ids": [1]}],
            collate=lambda batch: {},
            progress=lambda done: None,
            read=lambda batch, inputs: [],
        )
