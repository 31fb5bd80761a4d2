"""The results do not depend on how the rows are split into chunks."""

from itertools import product

import pytest
import torch
from loss_cases import DIGITS

from ntl.losses import ce_ntl, linear_ce_ntl
from ntl.losses.fused import chunks


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["was", "gce", "was_vocab"])
def test_the_size_of_a_chunk_changes_nothing(
    kind: str, dtype: torch.dtype, inplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(23, 13, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 13, (23,), generator=generator)
    labels[4:11] = -100  # some chunks have no row that counts
    itemsize = max(dtype.itemsize, 4)  # half precision is computed in float32
    gradients = []
    for rows in (1, 2, 5, 23, 100):
        monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", rows * 13 * itemsize // torch.get_num_threads())
        leaf = logits.clone().requires_grad_()
        options = {"kind": kind, "implementation": "fused", "inplace": inplace}
        ce_ntl(leaf.view_as(leaf), labels, DIGITS, **options).total.backward()
        gradients.append(leaf.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["was", "was_vocab"])
@pytest.mark.parametrize("lower", [5.0, 20.0, 80.0, 120.0, 1000.0, torch.inf])
def test_a_label_as_unlikely_as_can_be(
    lower: float, kind: str, dtype: torch.dtype, inplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is exact whatever the other rows of the chunk are, and wherever the unlikely label is."""
    monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", 3 * 13 * 8 // torch.get_num_threads())
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 13, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 13, (7,), generator=generator)
    for rows in ([4], [0, 5]):
        low = logits.clone()
        low[rows, labels[rows]] -= lower
        exact, leaf = low.double().clone().requires_grad_(), low.clone().requires_grad_()
        expected = ce_ntl(exact, labels, DIGITS, kind=kind, implementation="reference").total
        found = ce_ntl(leaf.view_as(leaf), labels, DIGITS, kind=kind, implementation="fused", inplace=inplace).total
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
        expected.backward()
        found.backward()
        rounding = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 8e-3}[dtype]
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=rounding, atol=rounding / 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("depth", [50.0, 90.0, 1000.0, torch.inf])
def test_logits_so_low_that_exponentials_underflow(
    depth: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they underflow in the first row that counts, softmax is used, since exp can then take ten times as long."""
    softmaxes: list[int] = []
    original = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda *args, **options: softmaxes.append(1) or original(*args, **options))
    logits = torch.randn(5, 13, generator=torch.Generator().manual_seed(0)).to(dtype)
    logits[:, 11:] -= depth
    labels = torch.tensor([-100, 2, 5, 9, 0])
    exact, leaf = logits.double().requires_grad_(), logits.clone().requires_grad_()
    found = ce_ntl(leaf, labels, DIGITS, implementation="fused").total
    assert bool(softmaxes) == (depth >= 90)
    expected = ce_ntl(exact, labels, DIGITS, implementation="reference").total
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    expected.backward()
    found.backward()
    rounding = {torch.float32: 1e-6, torch.bfloat16: 8e-3}[dtype]
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=rounding, atol=1e-8)
    assert depth < torch.inf or not leaf.grad[:, 11:].any()


@pytest.mark.parametrize("at", [3e4, -3e4])
@pytest.mark.parametrize(
    ("kind", "lower"),
    [
        *product(["ce", "gce", "was", "gce+was_cdf", "was_vocab"], [0.0, 50.0]),
        *product(["ce", "was", "was_vocab"], [torch.inf]),  # the loss of gce would be infinite
    ],
)
def test_large_logits_lose_no_digits_of_the_loss(lower: float, kind: str, at: float) -> None:
    """float32 has only three decimals near 30,000, so log-sum-exps there are kept in two parts, for all labels."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 13, generator=generator) + at
    labels = torch.tensor([7, 1])
    logits[1, 1] -= lower
    expected = ce_ntl(logits.double(), labels, DIGITS, kind=kind, implementation="reference")
    for given in (logits, logits.clone().requires_grad_()):
        found = ce_ntl(given, labels, DIGITS, kind=kind, implementation="fused")
        for one, other in ((found.total, expected.total), (found.base.sum, expected.base.sum)):
            torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=0)
        torch.testing.assert_close(found.number.sum.double(), expected.number.sum, rtol=1e-6, atol=1e-9)
        if lower < torch.inf:  # multiplied by a 0 of the head
            head = {"bias": torch.full((13,), at), "kind": kind, "implementation": "fused"}
            hidden = linear_ce_ntl(given - at, torch.eye(13), labels, DIGITS, **head)
            torch.testing.assert_close(hidden.total, found.total, rtol=1e-6, atol=0)


def test_a_threads_share_of_a_chunk_is_what_its_cache_holds() -> None:
    labels = torch.zeros(4096, dtype=torch.long)
    one, threads = torch.ones(()), torch.get_num_threads()
    empty = torch.empty(0, dtype=torch.long)
    part = chunks.NumberPart(one[None][:0], None, None, None, None, None)
    rows = chunks.RowBatch(labels, None, empty, empty, one.new_empty(0, 0), part, chunks.Scales(one, one))
    assert rows.chunk_length(1024) == threads * chunks.CPU_CHUNK_BYTES // 4096
    assert rows.chunk_length(10**9) == 1
