"""Which step is blamed, and for which examples."""

import math

import numpy as np
import pytest
import torch

from ntl.training.blame import INDEX, CollateNumbered, Numbered, RecentSteps


class _Letters:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, str]:
        return {"letter": "abc"[index]}

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return indices + 10


def test_examples_know_their_place() -> None:
    numbered = Numbered(_Letters())
    assert len(numbered) == 3
    assert numbered.__getitems__([2, 0]) == [{"letter": "c", INDEX: 2}, {"letter": "a", INDEX: 0}]
    assert numbered.lengths(np.array([1, 2])).tolist() == [11, 12]


def test_a_batch_carries_the_places_of_numbered_examples_alone() -> None:
    collate = CollateNumbered(lambda examples: {"size": torch.tensor(len(examples))})
    assert collate(Numbered(_Letters()).__getitems__([2, 0]))[INDEX].tolist() == [2, 0]
    assert set(collate([_Letters()[1]])) == {"size"}


def _recent(*losses: list[float]) -> RecentSteps:
    """Step n has the examples 10 n and 10 n + 1, one a batch."""
    recent = RecentSteps()
    for step, values in enumerate(losses, 1):
        recent.begin(step, [torch.tensor([10 * step]), torch.tensor([10 * step + 1])])
        for value in values:
            recent.add(torch.tensor(value))
    return recent


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_step_that_is_not_finite_is_blamed_for_all_its_batches(bad: float) -> None:
    assert _recent([1, 2], [3, bad], [bad, bad]).blame() == (2, [20, 21])
    assert _recent([bad], [1.0]).blame() == (1, [10, 11])


def test_else_the_last_one_is() -> None:
    recent = _recent([1], [2], [3])
    assert recent.blame() == (3, [30, 31])
    recent.forget()
    assert recent.blame() == (3, [30, 31])
    recent.begin(4, [torch.tensor([7])])
    assert recent.blame() == (4, [7])


def test_what_was_found_finite_is_forgotten() -> None:
    recent = _recent([math.nan], [2])
    recent.forget()
    assert recent.blame() == (2, [20, 21])


def test_before_any_step_there_is_none_to_blame() -> None:
    recent = RecentSteps()
    recent.forget()
    recent.add(torch.tensor(1.0))
    assert recent.blame() == (None, [])
