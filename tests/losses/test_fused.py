"""The fused pass over logits: its buffer, in-place gradients, repeated backward passes."""

import pytest
import torch
from loss_cases import DIGITS
from torch import Tensor

from ntl.losses import ce_ntl, linear_ce_ntl

LABELS = torch.tensor([7, 1, -100, 5, 0, 12])


def logits(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(6, 13, generator=torch.Generator().manual_seed(0)).to(dtype)


def gradient(dtype: torch.dtype = torch.float32, upstream: float = 1.0) -> Tensor:
    leaf = logits(dtype).requires_grad_()
    (ce_ntl(leaf, LABELS, DIGITS, implementation="reference").total * upstream).backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize("upstream", [1.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_in_place_the_gradient_takes_the_place_of_the_logits(dtype: torch.dtype, upstream: float) -> None:
    leaf = logits(dtype).requires_grad_()
    before = leaf.data_ptr()
    total = ce_ntl(leaf, LABELS, DIGITS, implementation="fused", inplace=True).total * upstream
    total.backward()
    assert leaf.grad is not None
    assert leaf.grad.data_ptr() == before
    tolerance = {torch.bfloat16: 1e-2, torch.float32: 1e-6, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(leaf.grad, gradient(dtype, upstream), rtol=tolerance, atol=tolerance)


def test_in_place_has_one_backward() -> None:
    leaf = logits().requires_grad_()
    total = ce_ntl(leaf, LABELS, DIGITS, implementation="fused", inplace=True).total
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="no second backward"):
        total.backward()


def test_in_place_needs_logits_of_its_own() -> None:
    with pytest.raises(ValueError, match="contiguous logits"):
        ce_ntl(torch.zeros(13, 6).t(), LABELS, DIGITS, implementation="fused", inplace=True)
    with pytest.raises(ValueError, match="float16"):
        ce_ntl(logits(torch.float16), LABELS, DIGITS, implementation="fused", inplace=True)


@pytest.mark.parametrize("upstream", [1.0, 3.0])
def test_two_backwards(upstream: float) -> None:
    leaf = logits().requires_grad_()
    total = ce_ntl(leaf, LABELS, DIGITS, implementation="fused").total * upstream
    total.backward(retain_graph=True)
    total.backward()
    torch.testing.assert_close(leaf.grad, 2 * gradient(upstream=upstream))


def test_a_second_derivative_is_refused() -> None:
    leaf = logits().requires_grad_()
    total = ce_ntl(leaf, LABELS, DIGITS, implementation="fused").total
    (first,) = torch.autograd.grad(total, leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        first.sum().backward()


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_without_gradients(reduction) -> None:
    leaf = logits().requires_grad_()
    expected = ce_ntl(leaf, LABELS, DIGITS, implementation="reference", reduction=reduction)
    with torch.no_grad():
        alone = ce_ntl(leaf, LABELS, DIGITS, implementation="fused", reduction=reduction)
    frozen = ce_ntl(logits(), LABELS, DIGITS, implementation="fused", reduction=reduction)
    for joint in (alone, frozen):
        assert not joint.total.requires_grad
        torch.testing.assert_close(joint.total, expected.total.detach())
        torch.testing.assert_close(joint.number.sum, expected.number.sum)


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


def test_one_tensor_of_the_size_of_the_logits_is_kept() -> None:
    leaf = torch.zeros(64, 4096, requires_grad=True)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        ce_ntl(leaf, torch.full((64,), 7), DIGITS, implementation="fused")
    assert [size for size in saved if size >= leaf.numel()] == [leaf.numel()]


def test_the_gradient_is_handed_over_and_not_copied() -> None:
    leaf = torch.zeros(64, 4096, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.data_ptr()) or x, lambda x: x):
        total = ce_ntl(leaf, torch.full((64,), 7), DIGITS, implementation="fused").total
    total.backward()
    assert leaf.grad is not None
    assert leaf.grad.data_ptr() in kept
