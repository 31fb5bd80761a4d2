"""Answers in the order of the examples, whatever order they are decoded in; stored answers are used once and whole."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import DecodingConfig
from ntl.decoding.batches import Answer, Example, Journal, Read, batches, decode

LENGTHS = [2, 5, 1, 5, 3]
BATCHES = [["1", "3"], ["4", "0"], ["2"]]


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


def run(
    built: SimpleNamespace, batch_size: int, model: torch.nn.Module | None = None, journal: Journal | None = None
) -> SimpleNamespace:
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
        journal=journal,
        max_new_tokens=7,
    )
    return seen


@pytest.mark.parametrize(
    ("size", "batches", "done"),
    [(2, [[5, 5], [3, 2], [1]], [2, 4, 5]), (5, [[5, 5, 3, 2, 1]], [5]), (99, [[5, 5, 3, 2, 1]], [5])],
)
def test_long_ones_first_and_answers_in_order(built, size: int, batches: list[list[int]], done: list[int]) -> None:
    seen = run(built, size)
    assert built.given == [{"model": seen.model, "tokenizer": "the tokenizer", "max_new_tokens": 7}]
    assert seen.batches == batches
    assert seen.done == done
    assert [answer.text for answer in seen.answers] == ["0", "1", "2", "3", "4"]


def test_batches_are_those_that_are_read() -> None:
    examples = [{"question_ids": [7] * length} for length in LENGTHS]
    assert batches(examples, 2) == [[int(name) for name in batch] for batch in BATCHES]
    assert batches([], 2) == []


@pytest.mark.parametrize("kept", [(), (0, 1, 2), (2, 0)])
def test_batches_of_a_journal_are_not_read_again(built, kept: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "answers"
    whole = run(built, 2, journal=Journal(path, {}, BATCHES))
    head, *lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    path.write_bytes(b"".join([head, *(lines[batch] for batch in kept)]))
    seen = run(built, 2, journal=Journal(path, {}, BATCHES))
    assert seen.batches == [batch for number, batch in enumerate(whole.batches) if number not in kept]
    assert seen.done[-1:] == ([5] if len(kept) < 3 else [])
    assert seen.answers == whole.answers
    assert sorted(path.read_bytes().splitlines(keepends=True)) == sorted([head, *lines])


def test_the_model_is_left_as_it_was(built) -> None:
    for training in (True, False):
        assert run(built, 2, Model().train(training)).model.training is training


KEY = {"weights": "abc", "decoding": {"num_beams": 4}}
IDS = [["a", "b"], ["c"], ["d", "e"]]
FIRST = [Answer("1", [3, 2], {"sd": 0.1 + 0.2, "quantiles": {"0.5": 1e-300}, "covered": 1.0}), Answer("", [])]
SECOND = [Answer("−\n\ud800", [7])]
THIRD = [Answer("5", [3, 2]), Answer("6", [])]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / ".predictions.test.answers"


def test_what_was_added_is_there_in_its_order(path: Path) -> None:
    journal = Journal(path, KEY, IDS)
    journal.add(0, FIRST)
    assert journal.answers == {}
    journal.add(1, SECOND)
    again = Journal(path, KEY, IDS)
    assert (again.answers, again.examples) == ({0: FIRST, 1: SECOND}, 3)
    assert json.dumps(again.answers[0]) == json.dumps(FIRST)
    again.add(2, THIRD)
    assert Journal(path, KEY, IDS).answers == {0: FIRST, 1: SECOND, 2: THIRD}


@pytest.mark.parametrize(
    ("key", "others"),
    [
        ({**KEY, "weights": "abd"}, IDS),
        (KEY, [["b", "a"], *IDS[1:]]),
        (KEY, [["a", "x"], *IDS[1:]]),
        (KEY, [IDS[2], IDS[1], IDS[0]]),
        (KEY, [["a"]]),
    ],
)
def test_answers_to_something_else_are_none_of_these(path: Path, key: dict[str, Any], others: list[list[str]]) -> None:
    """Of other weights, or of as many or fewer examples, in another order, at another place."""
    Journal(path, key, others).add(0, FIRST)
    journal = Journal(path, KEY, IDS)
    assert journal.answers == {}
    journal.add(0, THIRD)
    assert Journal(path, KEY, IDS).answers == {0: THIRD}


@given(order=st.permutations(range(6)))
def test_two_that_write_at_once_are_told_apart(tmp_path_factory: pytest.TempPathFactory, order: list[int]) -> None:
    """Both have opened the file, the second one with another key and other batches; then each writes when it can."""
    path = tmp_path_factory.mktemp("journal") / "answers"
    other = {**KEY, "weights": "another"}
    mine, its = Journal(path, KEY, IDS), Journal(path, other, [["a"], ["b"], ["c"]])
    writes = [
        *((mine, batch, answers) for batch, answers in enumerate([FIRST, SECOND, THIRD])),
        *((its, batch, SECOND) for batch in range(3)),
    ]
    for place in order:
        journal, batch, answers = writes[place]
        journal.add(batch, answers)
    found = Journal(path, other, [["a"], ["b"], ["c"]])
    assert found.answers == dict.fromkeys(range(3), SECOND)
    assert Journal(path, KEY, IDS).answers == {}


def test_cut_anywhere_it_has_the_whole_batches_before(path: Path) -> None:
    journal = Journal(path, KEY, IDS)
    begun = path.stat().st_size
    journal.add(0, FIRST)
    one = path.stat().st_size
    journal.add(1, SECOND)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        found = Journal(path, KEY, IDS)
        expected = {0: FIRST, 1: SECOND} if size == len(whole) else {0: FIRST} if size >= one else {}
        assert found.answers == expected
        found.add(2, THIRD)
        assert Journal(path, KEY, IDS).answers == expected | {2: THIRD}
    assert begun < one


def test_a_byte_that_changed_is_no_answer(path: Path) -> None:
    Journal(path, KEY, IDS).add(1, [Answer("12", [3, 2])])
    whole = path.read_bytes()
    begun = whole.index(b"\n") + 1
    for place in range(begun, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert Journal(path, KEY, IDS).answers == {}
