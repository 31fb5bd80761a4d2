"""Bookkeeping of the examples of each step, so that the error of a diverged training can name them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

INDEX = "index"


class Numbered:
    """An encoded data set whose examples also contain their own index."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.dataset[index], INDEX: index}

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Return the number of tokens of each example."""
        return self.dataset.lengths(indices)


class CollateNumbered:
    """A collate function that adds the indices of numbered examples to the batch, as ``INDEX`` of shape (B,)."""

    def __init__(self, collate: Callable[[Sequence[Any]], dict[str, torch.Tensor]]) -> None:
        self.collate = collate

    def __call__(self, examples: Sequence[Any]) -> dict[str, torch.Tensor]:
        batch = self.collate(examples)
        if INDEX in examples[0]:
            batch[INDEX] = torch.tensor([example[INDEX] for example in examples])
        return batch


class RecentSteps:
    """The losses and example indices of this rank's optimizer steps since the loss was last known to be finite.

    Tensors stay on their device, so that recording them does not wait for the GPU.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[int, list[torch.Tensor], list[torch.Tensor]]] = []

    def begin(self, step: int, indices: list[torch.Tensor]) -> None:
        """Begin optimizer step ``step``; ``indices`` holds the example indices of each batch, (B,) each."""
        self._steps.append((step, indices, []))

    def add(self, loss: torch.Tensor) -> None:
        """Add the loss of a batch to the step that began last."""
        if self._steps:
            self._steps[-1][2].append(loss.detach())

    def forget(self) -> None:
        """Drop all steps but the last: their losses are finite, but its update may still have broken the weights."""
        del self._steps[:-1]

    def blame(self) -> tuple[int | None, list[int]]:
        """Return the first step with a loss that is not finite, otherwise the last step, and its example indices."""
        broken = (step for step in self._steps if not all(bool(torch.isfinite(loss)) for loss in step[2]))
        blamed = next(broken, self._steps[-1] if self._steps else None)
        if blamed is None:
            return None, []
        step, indices, _ = blamed
        return step, [int(index) for batch in indices for index in batch]
