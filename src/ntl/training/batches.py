"""The batches of training: the order of the examples, batches cut into parts, and which examples recent steps had.

Shapes: B rows, S positions of the input, T positions of a decoder that an encoder precedes.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import TrainerCallback

from ntl.data.encode import EncodedDataset
from ntl.losses.rows import IGNORE_INDEX, LOSS_WEIGHTS
from ntl.objectives.mixing import U64, keys_of, mix

# ---- the order of an epoch

# Up to this size the permutation is an array (1 MiB at most), and every permutation is equally likely.
DRAWN = 1 << 16
BLOCK = 1 << 14  # indices that are computed at once
# Batches that are sorted together for batches of similar length.
SORTED_BATCHES = 50
Lengths = Callable[[np.ndarray], np.ndarray]


def _drawn(n: int, keys: np.ndarray) -> np.ndarray:
    # mix maps distinct inputs to distinct outputs, so there are no ties.
    return np.argsort(mix(np.arange(n, dtype=U64) * U64(0x9E3779B97F4A7C15) + keys[0]))


def _feistel(values: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    widths = bits // 2, bits - bits // 2
    left, right = values >> U64(widths[1]), values & U64((1 << widths[1]) - 1)
    for number, key in enumerate(keys):
        left, right = right, left ^ (mix(right + key) & U64((1 << widths[number % 2]) - 1))
    return (left << U64(widths[1])) | right


def permuted(positions: np.ndarray, n: int, *seeds: int) -> np.ndarray:
    """Map positions (int64) by a pseudorandom permutation of ``range(n)`` that depends on the seeds alone.

    Its memory does not grow with ``n``: above ``DRAWN`` it is computed by a Feistel network with cycle walking.
    """
    keys, bits = keys_of(*seeds), max(n - 1, 1).bit_length()
    if n <= DRAWN:
        return _drawn(n, keys)[positions]
    values = _feistel(positions.astype(U64), bits, keys)
    # Cycle walking: fewer than half of all values lie outside range(n), so a few rounds suffice.
    while (outside := np.flatnonzero(values >= U64(n))).size:
        values[outside] = _feistel(values[outside], bits, keys)
    return values.astype(np.int64)


def epoch_order(
    n: int, seed: int, epoch: int, *, batch_size: int = 1, lengths: Lengths | None = None
) -> Iterator[np.ndarray]:
    """Yield the indices of one epoch in blocks (int64); every example comes once.

    With ``lengths``, which maps indices to lengths, each batch of ``batch_size`` over all ranks has examples of similar
    length: the examples of ``SORTED_BATCHES`` batches of the shuffled order are sorted by length and cut into batches,
    and these batches are shuffled. An incomplete last batch stays last.
    """
    size = BLOCK if lengths is None else SORTED_BATCHES * batch_size
    for number, start in enumerate(range(0, n, size)):
        indices = permuted(np.arange(start, min(start + size, n)), n, seed, epoch)
        if lengths is not None:
            indices = indices[np.argsort(lengths(indices), kind="stable")]
            full = len(indices) // batch_size
            turns = _drawn(full, keys_of(seed, epoch, number))
            batches = indices[: full * batch_size].reshape(full, batch_size)[turns]
            indices = np.concatenate([batches.ravel(), indices[full * batch_size :]])
        yield indices


class EpochSampler(TrainerCallback, Sampler[int]):
    """Samples the indices of one epoch (``epoch_order``), which are the same in every process.

    As a callback it sets its own epoch: accelerate does not reach a sampler inside the two wrappers of a resumed run on
    several ranks.
    """

    def __init__(self, dataset: EncodedDataset, *, seed: int, batch_size: int = 1, by_length: bool = False) -> None:
        self.dataset, self.seed, self.batch_size, self.by_length = dataset, seed, batch_size, by_length
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.epoch = int(state.epoch or 0)  # a fraction in a resumed run

    def __iter__(self) -> Iterator[int]:
        lengths = self.dataset.lengths if self.by_length else None
        blocks = epoch_order(len(self), self.seed, self.epoch, batch_size=self.batch_size, lengths=lengths)
        return chain.from_iterable(block.tolist() for block in blocks)


# ---- parts of a batch

# With an encoder, these have a column for each position of the decoder; all other tensors have those of the input.
DECODER = ("decoder_input_ids", "labels", LOSS_WEIGHTS)


def micro_batches(batch: dict[str, Tensor], max_tokens: int) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Return the parts of a batch, each with the indices of its rows, (R,).

    Rows of similar length come together, the longest first, and columns that are padding in all of them are left out. A
    part of R rows has R times the positions of its longest input and output, at most ``max_tokens`` (0: the batch as it
    is); a row that is longer is a part of its own. All tensors are (B,) or (B, S, ...), of an encoder-decoder those of
    ``DECODER`` (B, T, ...).
    """
    attended, is_seq2seq = batch["attention_mask"].bool(), "decoder_input_ids" in batch
    if not max_tokens:
        return [(torch.arange(len(attended), device=attended.device), batch)]
    labelled = batch["labels"] != IGNORE_INDEX if is_seq2seq else attended[:, :0]
    lengths = torch.stack([attended.sum(1), labelled.sum(1)], dim=1)
    parts = []
    for rows in _cut(lengths.tolist(), max_tokens):
        chosen, part = torch.tensor(rows, device=attended.device), {}
        inputs, outputs = _columns(attended[chosen]), _columns(labelled[chosen])
        for name, values in batch.items():
            columns = outputs if is_seq2seq and name in DECODER else inputs
            part[name] = values[chosen][:, columns] if values.dim() > 1 else values[chosen]
        parts.append((chosen, part))
    return parts


def _cut(lengths: list[tuple[int, int]], max_tokens: int) -> list[list[int]]:
    cut: list[list[int]] = []
    widest = (0, 0)
    for row in sorted(range(len(lengths)), key=lambda row: -sum(lengths[row])):
        read, written = lengths[row]
        wider = max(widest[0], read), max(widest[1], written)
        if cut and (len(cut[-1]) + 1) * sum(wider) <= max_tokens:
            cut[-1].append(row)
            widest = wider
        else:
            cut.append([row])
            widest = read, written
    return cut


def _columns(used: Tensor) -> slice:
    """The columns from the first to the last that some row uses: padding is at one end."""
    places = used.any(0).nonzero().flatten().tolist()
    return slice(places[0], places[-1] + 1) if places else slice(0)


# ---- which examples a step had

INDEX = "index"


class CollateNumbered:
    """Collates pairs of example and index, those of training, by ``collate_training``; the batch has ``INDEX`` (B,)."""

    def __init__(self, collate: Callable[..., Any], collate_training: Callable[..., Any]) -> None:
        self.collate, self.collate_training = collate, collate_training

    def __call__(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        if not isinstance(examples[0], tuple):
            return self.collate(examples)
        chosen, indices = zip(*examples, strict=True)
        return {**self.collate_training(chosen), INDEX: torch.tensor(indices)}
