"""The training examples: their order in each epoch, and which of them the recent steps had."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler
from transformers import TrainerCallback

from ntl.data.encoded import EncodedDataset


class EpochSampler(Sampler[int]):
    """Samples the indices of one epoch (``epoch_order``), which are the same in every process.

    ``batch_size`` is that over all ranks; ``by_length``: the examples of a batch have similar lengths.
    """

    def __init__(self, dataset: EncodedDataset, *, seed: int, batch_size: int = 1, by_length: bool = False) -> None:
        self.dataset, self.seed, self.batch_size, self.by_length = dataset, seed, batch_size, by_length
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        lengths = self.dataset.lengths if self.by_length else None
        blocks = epoch_order(len(self), self.seed, self.epoch, batch_size=self.batch_size, lengths=lengths)
        return chain.from_iterable(block.tolist() for block in blocks)


class EpochOfSampler(TrainerCallback):
    """Sets the epoch of the sampler.

    accelerate also does so, but it does not reach a sampler inside the two wrappers of a resumed run on several ranks.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self.sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the epoch of the sampler: the integer part of ``state.epoch``, which is a fraction in a resumed run."""
        self.sampler.set_epoch(int(state.epoch or 0))


ROUNDS = 6  # of the Feistel network
# Up to this size the permutation is an array (1 MiB at most), and every permutation is equally likely.
DRAWN = 1 << 16
BLOCK = 1 << 14  # indices that are computed at once
# Batches that are sorted together for batches of similar length.
SORTED_BATCHES = 50
U64 = np.uint64
Lengths = Callable[[np.ndarray], np.ndarray]


def mix(values: np.ndarray) -> np.ndarray:
    """Apply the finalizer of splitmix64 (Steele, Lea and Flood 2014), a permutation of the 64-bit integers (uint64)."""
    values = values ^ (values >> U64(30))
    values *= U64(0xBF58476D1CE4E5B9)
    values ^= values >> U64(27)
    values *= U64(0x94D049BB133111EB)
    values ^= values >> U64(31)
    return values


def keys_of(*seeds: int | str) -> np.ndarray:
    """Return ``ROUNDS`` keys (uint64) that depend on the seeds alone."""
    digest = hashlib.blake2b(repr(seeds).encode(), digest_size=8 * ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8").astype(U64)


def _drawn(n: int, keys: np.ndarray) -> np.ndarray:
    # mix maps distinct inputs to distinct outputs, so there are no ties.
    return np.argsort(mix(np.arange(n, dtype=U64) * U64(0x9E3779B97F4A7C15) + keys[0]))


def _feistel(values: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    widths = bits // 2, bits - bits // 2
    left, right = values >> U64(widths[1]), values & U64((1 << widths[1]) - 1)
    for number, key in enumerate(keys):
        left, right = right, left ^ (mix(right + key) & U64((1 << widths[number % 2]) - 1))
    return (left << U64(widths[1])) | right


class Permutation:
    """A pseudorandom permutation of ``range(n)`` that depends on the seeds alone; its memory does not grow with ``n``.

    ``permutation(positions)`` maps an int64 array of positions to an int64 array of the same shape. Above ``DRAWN``
    elements it is computed by a Feistel network with cycle walking.
    """

    def __init__(self, n: int, *seeds: int) -> None:
        self.n = n
        self.keys = keys_of(*seeds)
        self.bits = max(n - 1, 1).bit_length()
        self.whole = _drawn(n, self.keys) if n <= DRAWN else None

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        if self.whole is not None:
            return self.whole[positions]
        values = _feistel(positions.astype(U64), self.bits, self.keys)
        # Cycle walking: fewer than half of all values lie outside range(n), so a few rounds suffice.
        while (outside := np.flatnonzero(values >= U64(self.n))).size:
            values[outside] = _feistel(values[outside], self.bits, self.keys)
        return values.astype(np.int64)


def epoch_order(
    n: int, seed: int, epoch: int, *, batch_size: int = 1, lengths: Lengths | None = None
) -> Iterator[np.ndarray]:
    """Yield the indices of one epoch in blocks (int64); every example comes once.

    Args:
        n: Number of examples.
        seed, epoch: Determine the order.
        batch_size: Batch size over all ranks; used with ``lengths`` alone.
        lengths: Maps indices to lengths. If given, each batch has examples of similar length: the examples of
            ``SORTED_BATCHES`` batches of the shuffled order are sorted by length and cut into batches, and these
            batches are shuffled. An incomplete last batch stays last.
    """
    permutation = Permutation(n, seed, epoch)
    size = BLOCK if lengths is None else SORTED_BATCHES * batch_size
    for number, start in enumerate(range(0, n, size)):
        indices = permutation(np.arange(start, min(start + size, n)))
        if lengths is not None:
            indices = indices[np.argsort(lengths(indices), kind="stable")]
            full = len(indices) // batch_size
            turns = _drawn(full, keys_of(seed, epoch, number))
            batches = indices[: full * batch_size].reshape(full, batch_size)[turns]
            indices = np.concatenate([batches.ravel(), indices[full * batch_size :]])
        yield indices


INDEX = "index"
Collate = Callable[[Sequence[Any]], dict[str, torch.Tensor]]


class Numbered:
    """An encoded data set whose examples also contain their own index."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.lengths = dataset.lengths

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.dataset[index], INDEX: index}

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]


class CollateNumbered:
    """A collate function that adds the indices of numbered examples to the batch, as ``INDEX`` of shape (B,).

    Numbered examples, those of training, are collated by ``collate_training``.
    """

    def __init__(self, collate: Collate, collate_training: Collate) -> None:
        self.collate, self.collate_training = collate, collate_training

    def __call__(self, examples: Sequence[Any]) -> dict[str, torch.Tensor]:
        if INDEX not in examples[0]:
            return self.collate(examples)
        batch = self.collate_training(examples)
        batch[INDEX] = torch.tensor([example[INDEX] for example in examples])
        return batch


class RecentSteps:
    """The losses and example indices of this rank's optimizer steps since the loss was last known to be finite.

    The error of a diverged training names them. Tensors stay on their device, so that recording them does not wait for
    the GPU.
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
        step, indices, _ = next(broken, self._steps[-1] if self._steps else (None, [], []))
        return step, [int(index) for batch in indices for index in batch]
