"""The order of the training examples: a permutation that depends on seed and epoch alone."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ntl.training.batches as order
from ntl.training.batches import epoch_order, permuted

SEEDS = st.integers(0, 2**32 - 1)
# Both ways of making it: drawn whole, and computed.
WAYS = pytest.mark.parametrize("drawn", [0, 1 << 16], ids=["computed", "drawn"])


@WAYS
@given(n=st.integers(0, 3000), seed=SEEDS, epoch=st.integers(0, 100))
def test_every_example_comes_once(drawn: int, n: int, seed: int, epoch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "DRAWN", drawn)
        found = permuted(np.arange(n), n, seed, epoch)
        assert np.array_equal(np.sort(found), np.arange(n))
        blocks = list(epoch_order(n, seed, epoch))
        assert np.array_equal(np.concatenate([np.empty(0, np.int64), *blocks]), found)


def test_the_order_is_pinned() -> None:
    """Changing the order changes the result of every run."""
    assert permuted(np.arange(10), 10, 1, 0).tolist() == PINNED_DRAWN
    assert permuted(np.arange(4), 26_000_000, 1, 0).tolist() == PINNED_COMPUTED


PINNED_DRAWN = [5, 0, 4, 3, 8, 2, 9, 6, 7, 1]
PINNED_COMPUTED = [8571018, 24258657, 16253366, 1364780]


@WAYS
def test_each_example_is_as_likely_at_each_place(drawn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "DRAWN", drawn)
    n, epochs = 48, 4000
    positions = np.arange(n)
    counts = np.zeros((n, n))
    for epoch in range(epochs):
        counts[positions, permuted(positions, n, 0, epoch)] += 1
    chi_square = float(((counts - epochs / n) ** 2).sum() / (epochs / n))
    degrees = (n - 1) ** 2
    # Eight standard deviations: a wrong construction is off by hundreds, and the seeds are fixed.
    assert abs(chi_square - degrees) < 8 * np.sqrt(2 * degrees)


@given(
    n=st.integers(0, 700), batch_size=st.integers(1, 9), seed=SEEDS, epoch=st.integers(0, 5), modulus=st.integers(1, 60)
)
def test_bucketing_keeps_every_example_and_sorts(n: int, batch_size: int, seed: int, epoch: int, modulus: int) -> None:
    def lengths(indices: np.ndarray) -> np.ndarray:
        return indices * 7919 % modulus

    def blocks() -> list[np.ndarray]:
        return list(epoch_order(n, seed, epoch, batch_size=batch_size, lengths=lengths))

    flat = np.concatenate([np.empty(0, np.int64), *blocks()])
    assert np.array_equal(np.sort(flat), np.arange(n))
    assert all(np.array_equal(one, two) for one, two in zip(blocks(), blocks(), strict=True))
    plain = np.concatenate([np.empty(0, np.int64), *epoch_order(n, seed, epoch)])
    size = order.SORTED_BATCHES * batch_size
    for start in range(0, n, size):
        # The batches of fifty are those examples that the plain order has there, and no two batches overlap in length.
        part = flat[start : start + size]
        assert set(part) == set(plain[start : start + size])
        batches = [lengths(part[i : i + batch_size]) for i in range(0, len(part), batch_size)]
        ranges = sorted((int(batch.min()), int(batch.max())) for batch in batches)
        assert all(before[1] <= after[0] for before, after in pairwise(ranges))
        assert all(len(batch) == batch_size for batch in batches[:-1])
