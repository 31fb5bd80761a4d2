"""One process does it all; what several do is tested by starting them (test_run_ranks.py)."""

from typing import Any

import pytest
import torch
from torch import distributed, nn

from ntl.training.ranks import from_all, is_first, my_share, whole_state


def test_alone_a_process_does_everything() -> None:
    assert is_first()
    assert list(my_share(3)) == [0, 1, 2]
    assert from_all(["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(("size", "count"), [(2, 5), (3, 31), (4, 2), (3, 0)])
def test_the_shares_of_all_ranks_are_every_index_in_order(
    size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: size)
    shares = []
    for rank in range(size):
        monkeypatch.setattr(distributed, "get_rank", lambda rank=rank: rank)
        shares.append(list(my_share(count)))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1

    def gather_object(mine: list[int], found: list[Any] | None) -> None:
        if found is not None:
            found[:] = shares

    monkeypatch.setattr(distributed, "gather_object", gather_object)
    assert from_all(shares[-1]) is None
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)
    assert from_all(shares[0]) == list(range(count))


def test_tied_weights_are_one_tensor() -> None:
    """As safetensors wants them, and as a model that is not sharded has them."""
    model = nn.ModuleDict({"embedding": nn.Embedding(3, 2), "head": nn.Linear(2, 3, bias=False)})
    model["head"].weight = model["embedding"].weight
    state = whole_state(model)
    assert state["head.weight"] is state["embedding.weight"]
    torch.testing.assert_close(state["head.weight"], model["embedding"].weight.detach(), rtol=0, atol=0)
