"""Interfaces of the collator, objective and decoding that the config of a run chooses."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from ntl.decoding.batches import Example, Read
from ntl.losses import JointLoss

Batch = dict[str, torch.Tensor]


class Collator(Protocol):
    """Collates examples into batches; built by ``objective.collator`` from the model's config and the tokenizer."""

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """Collate examples of ``ntl.data.encode``, token ids of question and answer, into a padded batch."""
        ...

    def prompts(self, examples: Sequence[Example]) -> Batch:
        """Collate the questions alone, as prompts for generation."""
        ...

    def longest_input(self, about: Mapping[str, int]) -> int:
        """Return the number of positions of a split's longest example, from ``EncodedDataset.about``."""
        ...


class Objective(Protocol):
    """A module around the model that computes the loss, built as ``objective(config, model=, terms=, number_vocab=)``.

    ``forward(**batch)`` returns a ``JointLoss``: sums and counts, and their total, which has the graph. They are
    scalars in training and one value per example (B,) in evaluation. In training, ``counts`` (2,) passes the
    denominators of the whole optimizer step.
    """

    def __call__(self, **batch: torch.Tensor) -> JointLoss: ...

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """Return how many labels the base term and the number term count, (2,)."""
        ...


class Decoding(Protocol):
    """A function that ``decoding._target_`` names. ``ntl.decoding.decode`` calls it once, and its result per batch."""

    def __call__(self, config: Any, *, model: Any, tokenizer: Any, max_new_tokens: int) -> Read:
        """``read(batch, inputs)``: one ``ntl.decoding.batches.Answer`` per example, in their order.

        ``inputs`` are those of the collator's ``prompts``, on the model's device.
        """
        ...
