"""Which examples a step was made of, so that a training that diverged can name them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

INDEX = "index"


class Numbered:
    """An encoded data set whose examples also hold their place in it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.dataset[index], INDEX: index}

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each example."""
        return self.dataset.lengths(indices)


class CollateNumbered:
    """``collate``, and the places of numbered examples as ``INDEX`` (B,) beside what it makes."""

    def __init__(self, collate: Callable[[Sequence[Any]], dict[str, torch.Tensor]]) -> None:
        self.collate = collate

    def __call__(self, examples: Sequence[Any]) -> dict[str, torch.Tensor]:
        batch = self.collate(examples)
        if INDEX in examples[0]:
            batch[INDEX] = torch.tensor([example[INDEX] for example in examples])
        return batch


class RecentSteps:
    """This rank's losses and examples of the optimizer steps since all were last known to be finite.

    Tensors stay where they are: nothing here waits for a GPU before it is asked.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[int, list[torch.Tensor], list[torch.Tensor]]] = []

    def begin(self, step: int, places: list[torch.Tensor]) -> None:
        """Step ``step`` begins; its batches hold the examples at ``places``, (B,) each."""
        self._steps.append((step, places, []))

    def add(self, loss: torch.Tensor) -> None:
        """The loss of a batch of the step that began last."""
        if self._steps:
            self._steps[-1][2].append(loss.detach())

    def forget(self) -> None:
        """All of them are finite; the last one is kept, whose update may still have broken the weights."""
        del self._steps[:-1]

    def blame(self) -> tuple[int | None, list[int]]:
        """The first step with a loss that is not finite, else the last one, and the places of its examples."""
        broken = (step for step in self._steps if not all(bool(torch.isfinite(loss)) for loss in step[2]))
        blamed = next(broken, self._steps[-1] if self._steps else None)
        if blamed is None:
            return None, []
        step, places, _ = blamed
        return step, [int(place) for batch in places for place in batch]
