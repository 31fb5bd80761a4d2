"""The order of the training examples as torch and transformers want it."""

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from torch.utils.data import Sampler
from transformers import TrainerCallback

from ntl.data.encoded import EncodedDataset


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


ROUNDS = 6
# Up to here the permutation is drawn whole, every one of them equally likely; it takes 1 MiB.
DRAWN = 1 << 16
BLOCK = 1 << 14
# Batches that are sorted together when batches of similar length are wanted.
SORTED_BATCHES = 50
U64 = np.uint64
Lengths = Callable[[np.ndarray], np.ndarray]


def _mix(values: np.ndarray) -> np.ndarray:
    # The finalizer of splitmix64 (Steele, Lea and Flood 2014), a permutation of the 64-bit integers.
    values = values ^ (values >> U64(30))
    values *= U64(0xBF58476D1CE4E5B9)
    values ^= values >> U64(27)
    values *= U64(0x94D049BB133111EB)
    values ^= values >> U64(31)
    return values


def _keys(*seeds: int) -> np.ndarray:
    digest = hashlib.blake2b(repr(seeds).encode(), digest_size=8 * ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8").astype(U64)


def _drawn(n: int, keys: np.ndarray) -> np.ndarray:
    # Distinct inputs give distinct outputs, so there are no ties.
    return np.argsort(_mix(np.arange(n, dtype=U64) * U64(0x9E3779B97F4A7C15) + keys[0]))


def _feistel(values: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    widths = bits // 2, bits - bits // 2
    left, right = values >> U64(widths[1]), values & U64((1 << widths[1]) - 1)
    for number, key in enumerate(keys):
        left, right = right, left ^ (_mix(right + key) & U64((1 << widths[number % 2]) - 1))
    return (left << U64(widths[1])) | right


class Permutation:
    """A permutation of ``range(n)`` that depends on the seeds alone; memory does not grow with ``n``.

    ``permutation(positions)`` maps an int64 array of positions to an int64 array of the same shape.
    """

    def __init__(self, n: int, *seeds: int) -> None:
        self.n = n
        self.keys = _keys(*seeds)
        self.bits = max(n - 1, 1).bit_length()
        self.whole = _drawn(n, self.keys) if n <= DRAWN else None

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        if self.whole is not None:
            return self.whole[positions]
        values = _feistel(positions.astype(U64), self.bits, self.keys)
        # Fewer than half of all values lie outside, so a few turns bring them home.
        while (outside := np.flatnonzero(values >= U64(self.n))).size:
            values[outside] = _feistel(values[outside], self.bits, self.keys)
        return values.astype(np.int64)


def epoch_order(
    n: int, seed: int, epoch: int, *, batch_size: int = 1, lengths: Lengths | None = None
) -> Iterator[np.ndarray]:
    """The examples of one epoch, in blocks of indices (int64). Every example comes once.

    With ``lengths``, which maps indices to lengths, each run of ``batch_size`` examples has similar lengths: fifty
    batches of the shuffled order are sorted together, cut, and the batches shuffled. The batch that is not full, if
    there is one, stays last.
    """
    permutation = Permutation(n, seed, epoch)
    size = BLOCK if lengths is None else SORTED_BATCHES * batch_size
    for number, start in enumerate(range(0, n, size)):
        indices = permutation(np.arange(start, min(start + size, n)))
        if lengths is not None:
            indices = indices[np.argsort(lengths(indices), kind="stable")]
            full = len(indices) // batch_size
            turns = _drawn(full, _keys(seed, epoch, number))
            batches = indices[: full * batch_size].reshape(full, batch_size)[turns]
            indices = np.concatenate([batches.ravel(), indices[full * batch_size :]])
        yield indices
