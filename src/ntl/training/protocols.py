"""What a collator, an objective and a decoding must offer: one of each is chosen by the config of a run."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from ntl.decoding.batches import Example, Read
from ntl.losses import JointLoss

Batch = dict[str, torch.Tensor]


class Collator(Protocol):
    """Made as ``collator(model.config, tokenizer)``, by ``objective.collator``."""

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """Examples of ``ntl.data.encode``, question and answer as token ids, to a padded batch with ``labels``."""
        ...

    def prompts(self, examples: Sequence[Example]) -> Batch:
        """The same without answers, as a model is asked."""
        ...

    def longest_input(self, about: Mapping[str, int]) -> int:
        """How many positions the longest example of a split takes, which ``about`` tells of (``EncodedDataset``)."""
        ...


class Objective(Protocol):
    """Made as ``objective(config, model=, terms=, number_vocab=)``: a module around the model, whose forward it is.

    ``forward(**batch)`` returns a ``JointLoss``: sums and counts, and their total with its graph; scalars in training,
    one value an example in evaluation. In training it is given ``counts``, the denominators
    of the whole optimizer step.
    """

    def __call__(self, **batch: torch.Tensor) -> JointLoss: ...

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """(2,): how many labels the base and the number term count."""
        ...


class Decoding(Protocol):
    """A function that ``decoding._target_`` names. ``ntl.decoding.decode`` calls it once, and its result per batch."""

    def __call__(self, config: Any, *, model: Any, tokenizer: Any, max_new_tokens: int) -> Read:
        """``read(batch, inputs)``: one ``ntl.decoding.batches.Answer`` per example, in their order.

        ``inputs`` are those of the collator's ``prompts``, on the model's device.
        """
        ...
