"""Large pages are asked for within the tensor's own memory alone, and what is in it does not depend on them."""

import mmap

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ntl.losses import pages

asked = pytest.mark.skipif(pages._madvise is None, reason="large pages are asked for under Linux alone")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    calls: list[tuple[int, int, int]] = []
    monkeypatch.setattr(pages, "_madvise", lambda *call: calls.append(call))
    return calls


@asked
@pytest.mark.parametrize("size", [3 << 20, 16 << 20, (5 << 20) + 12])
def test_whole_large_pages_of_the_tensor_alone(size: int, calls: list[tuple[int, int, int]]) -> None:
    made = pages.fresh_like(torch.empty(size // 4), torch.float32)
    for start, length, advice in calls:
        assert advice == mmap.MADV_HUGEPAGE
        assert start % pages.LARGE_PAGE == length % pages.LARGE_PAGE == 0
        assert made.data_ptr() <= start < start + length <= made.data_ptr() + made.nbytes
    assert len(calls) == 1 or size < 2 * pages.LARGE_PAGE


def test_nothing_for_small_ones_and_for_shapes_without_memory(calls: list[tuple[int, int, int]]) -> None:
    pages.fresh_like(torch.empty(1000), torch.float32)
    with FakeTensorMode():
        assert pages.fresh_like(torch.empty(1 << 24), torch.float32).shape == (1 << 24,)
    assert pages.fresh_like(torch.empty(1 << 24, device="meta"), torch.float32).is_meta
    assert not calls


def test_it_is_an_empty_tensor_like_another() -> None:
    like = torch.zeros(1500, 2000, dtype=torch.bfloat16)
    made = pages.fresh_like(like, torch.float32)
    assert (made.shape, made.dtype, made.requires_grad) == (like.shape, torch.float32, False)
    assert made.fill_(3.0).sum() == 9e6


def test_without_the_call_there_is_a_tensor_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_madvise", None)
    assert pages.fresh_like(torch.empty(1 << 20), torch.float64).shape == (1 << 20,)
