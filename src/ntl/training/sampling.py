"""The order of the training examples as torch and transformers want it."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from torch.utils.data import Sampler
from transformers import TrainerCallback

from ntl.data.encoded import EncodedDataset
from ntl.data.order import epoch_order


class EpochSampler(Sampler[int]):
    """Indices of one epoch, decided by seed and epoch alone: the same in every process, on any number of workers.

    ``batch_size`` counts the examples of all ranks; with ``by_length`` so many neighbours have similar lengths.
    """

    def __init__(self, dataset: EncodedDataset, *, seed: int, batch_size: int = 1, by_length: bool = False) -> None:
        self.dataset = dataset
        self.seed = seed
        self.batch_size = batch_size
        self.by_length = by_length
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        lengths = self.dataset.lengths if self.by_length else None
        blocks = epoch_order(len(self), self.seed, self.epoch, batch_size=self.batch_size, lengths=lengths)
        return chain.from_iterable(block.tolist() for block in blocks)


class EpochOfSampler(TrainerCallback):
    """Tells the sampler its epoch.

    accelerate does so, too, but not through the two wrappers that a resumed run on several ranks has around it.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self.sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The epoch of a resumed run is a fraction; its whole part counts."""
        self.sampler.set_epoch(int(state.epoch or 0))
