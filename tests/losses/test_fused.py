"""The fused pass over logits: its buffer, in-place gradients, repeated backward passes, chunks, extreme logits."""

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import DIGITS, value_and_gradients
from torch import Tensor

from ntl.losses import JointLoss, ce_ntl, linear_ce_ntl
from ntl.losses.fused import chunks

LABELS = torch.tensor([7, 1, -100, 5, 0, 12])
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 8e-3}


def logits(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(6, 13, generator=torch.Generator().manual_seed(0)).to(dtype)


def gradient(dtype: torch.dtype = torch.float32, upstream: float = 1.0) -> Tensor:
    leaf = logits(dtype).requires_grad_()
    (ce_ntl(leaf, LABELS, DIGITS, implementation="reference").total * upstream).backward()
    assert leaf.grad is not None
    return leaf.grad


def test_in_place_the_gradient_takes_the_place_of_the_logits() -> None:
    for dtype, upstream in product((torch.float32, torch.bfloat16, torch.float64), (1.0, 3.0)):
        leaf = logits(dtype).requires_grad_()
        before = leaf.data_ptr()
        (ce_ntl(leaf, LABELS, DIGITS, implementation="fused", inplace=True).total * upstream).backward()
        assert leaf.grad is not None
        assert leaf.grad.data_ptr() == before
        tolerance = {torch.bfloat16: 1e-2, torch.float32: 1e-6, torch.float64: 1e-12}[dtype]
        torch.testing.assert_close(leaf.grad, gradient(dtype, upstream), rtol=tolerance, atol=tolerance)


def test_in_place_has_one_backward_and_needs_logits_of_its_own() -> None:
    leaf = logits().requires_grad_()
    total = ce_ntl(leaf, LABELS, DIGITS, implementation="fused", inplace=True).total
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="no second backward"):
        total.backward()
    with pytest.raises(ValueError, match="contiguous logits"):
        ce_ntl(torch.zeros(13, 6).t(), LABELS, DIGITS, implementation="fused", inplace=True)
    with pytest.raises(ValueError, match="float16"):
        ce_ntl(logits(torch.float16), LABELS, DIGITS, implementation="fused", inplace=True)


@pytest.mark.parametrize("upstream", [1.0, 3.0])
def test_two_backwards_and_no_second_derivative(upstream: float) -> None:
    leaf = logits().requires_grad_()
    total = ce_ntl(leaf, LABELS, DIGITS, implementation="fused").total * upstream
    total.backward(retain_graph=True)
    (first,) = torch.autograd.grad(total, leaf, create_graph=True)
    torch.testing.assert_close(leaf.grad, gradient(upstream=upstream))
    torch.testing.assert_close(first, gradient(upstream=upstream))
    with pytest.raises(RuntimeError, match="does not require grad"):
        first.sum().backward()


def test_float16_keeps_its_gradient_until_the_loss_scale_arrives() -> None:
    """In a mean over 4,096 rows a probability of 1e-4 has the gradient 2e-8, which float16 cannot represent."""
    wide, labels = torch.zeros(4096, 13).half(), torch.full((4096,), 7)
    wide[:, 1] = -6.0
    leaf = wide.clone().requires_grad_()
    (ce_ntl(leaf, labels, DIGITS, implementation="fused").total * 65536).backward()
    exact = wide.double().requires_grad_()
    (ce_ntl(exact, labels, DIGITS, implementation="reference").total * 65536).backward()
    assert leaf.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=2e-3, atol=0)


@pytest.mark.parametrize("linear", [False, True])
def test_a_gradient_scaler_takes_its_factor_back(linear: bool) -> None:
    """A step of SGD with a gradient scaler equals the step of the reference without one."""
    weights = []
    for implementation, enabled in (("fused", True), ("reference", False)):
        torch.manual_seed(0)
        hidden = torch.randn(6, 5)
        weight = torch.randn(13, 5, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=enabled)
        if linear:
            joint = linear_ce_ntl(hidden, weight, LABELS, DIGITS, implementation=implementation)
        else:
            joint = ce_ntl(hidden @ weight.t(), LABELS, DIGITS, implementation=implementation)
        scaler.scale(joint.total).backward()
        scaler.step(optimizer)
        scaler.update()
        weights.append(weight.detach())
    torch.testing.assert_close(*weights)


def test_a_gradient_beyond_float16_saturates() -> None:
    leaf = torch.zeros(1, 13, dtype=torch.float16, requires_grad=True)
    (ce_ntl(leaf, torch.tensor([3]), DIGITS, kind="mse", weight=1e4, implementation="fused").total * 1e4).backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert leaf.grad.abs().max() == torch.finfo(torch.float16).max


def test_one_tensor_of_the_size_of_the_logits_is_kept_and_handed_over() -> None:
    leaf = torch.zeros(64, 4096, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: (kept.append(x.data_ptr()) if x.numel() >= leaf.numel() else None, x)[1], lambda x: x
    ):
        total = ce_ntl(leaf, torch.full((64,), 7), DIGITS, implementation="fused").total
    total.backward()
    assert leaf.grad is not None
    assert kept == [leaf.grad.data_ptr()]


# ---- chunks of rows, and rows whose label or number tokens are very unlikely


@settings(max_examples=15)
@given(
    kind=st.sampled_from(["was", "gce", "was_vocab"]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    inplace=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_size_of_a_chunk_changes_nothing(kind: str, dtype: torch.dtype, inplace: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(23, 13, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 13, (23,), generator=generator)
    labels[4:11] = -100  # some chunks have no row that counts
    itemsize = max(dtype.itemsize, 4)  # half precision is computed in float32
    gradients = []
    for rows in (1, 2, 5, 23, 100):
        leaf = logits.clone().requires_grad_()
        options: dict[str, Any] = {"kind": kind, "implementation": "fused", "inplace": inplace}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunks, "CPU_CHUNK_BYTES", rows * 13 * itemsize // torch.get_num_threads())
            ce_ntl(leaf.view_as(leaf), labels, DIGITS, **options).total.backward()
        gradients.append(leaf.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-12, atol=1e-15)


def assert_exact(given: Tensor, labels: Tensor, atol: float, kind: str = "was", inplace: bool = False) -> Tensor:
    """Compare loss and gradient with the reference in float64; return the gradient."""

    def computed(given: Tensor, **how: Any) -> tuple[JointLoss, list[Tensor]]:
        return value_and_gradients(lambda x: ce_ntl(x, labels, DIGITS, **how), given, upstream=1.0)

    expected, (exact,) = computed(given.double(), kind=kind, implementation="reference")
    found, (gradient,) = computed(given, kind=kind, implementation="fused", inplace=inplace)
    torch.testing.assert_close(found.total.double(), expected.total, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), exact, rtol=ROUNDING[given.dtype], atol=atol)
    return gradient


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_a_label_as_unlikely_as_can_be(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is exact whatever the other rows of the chunk are, and wherever the unlikely label is."""
    monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", 3 * 13 * 8 // torch.get_num_threads())
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(7, 13, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 13, (7,), generator=generator)
    for lower, kind, inplace, rows in product(
        (5.0, 20.0, 80.0, 120.0, 1000.0, torch.inf), ("was", "was_vocab"), (False, True), ([4], [0, 5])
    ):
        low = given.clone()
        low[rows, labels[rows]] -= lower
        assert_exact(low, labels, ROUNDING[dtype] / 10, kind=kind, inplace=inplace)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_logits_so_low_that_exponentials_underflow(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """If they underflow in the first row that counts, softmax is used, since exp can then take ten times as long."""
    softmaxes: list[Any] = []
    original = chunks._softmax
    monkeypatch.setattr(chunks, "_softmax", lambda *args: softmaxes.append(args) or original(*args))
    for depth in (50.0, 90.0, 1000.0, torch.inf):
        softmaxes.clear()
        given = torch.randn(5, 13, generator=torch.Generator().manual_seed(0)).to(dtype)
        given[:, 11:] -= depth
        gradient = assert_exact(given, torch.tensor([-100, 2, 5, 9, 0]), 1e-8)
        assert bool(softmaxes) == (depth >= 90)
        assert depth < torch.inf or not gradient[:, 11:].any()


@pytest.mark.parametrize("at", [3e4, -3e4])
def test_large_logits_lose_no_digits_of_the_loss(at: float) -> None:
    """float32 has only three decimals near 30,000, so log-sum-exps there are kept in two parts, for all labels."""
    for kind, lower in [
        *product(["ce", "gce", "was", "gce+was_cdf", "was_vocab"], [0.0, 50.0]),
        *product(["ce", "was", "was_vocab"], [torch.inf]),  # the loss of gce would be infinite
    ]:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(2, 13, generator=generator) + at
        labels = torch.tensor([7, 1])
        logits[1, 1] -= lower
        expected = ce_ntl(logits.double(), labels, DIGITS, kind=kind, implementation="reference")
        for given_logits in (logits, logits.clone().requires_grad_()):
            found = ce_ntl(given_logits, labels, DIGITS, kind=kind, implementation="fused")
            for one, other in ((found.total, expected.total), (found.base.sum, expected.base.sum)):
                torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=0)
            torch.testing.assert_close(found.number.sum.double(), expected.number.sum, rtol=1e-6, atol=1e-9)
            if lower < torch.inf:  # multiplied by a 0 of the head
                head: dict[str, Any] = {"bias": torch.full((13,), at), "kind": kind, "implementation": "fused"}
                hidden = linear_ce_ntl(given_logits - at, torch.eye(13), labels, DIGITS, **head)
                torch.testing.assert_close(hidden.total, found.total, rtol=1e-6, atol=0)
