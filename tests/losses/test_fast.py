"""The fast way: its buffers, repeated backward passes, chunks, extreme logits, and losses from hidden states."""

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import DIGITS, KINDS, WIDTH, all_positions, assert_same, batch, value_and_gradients
from torch import Tensor

from ntl.benchmarks.timing import peak_bytes
from ntl.losses import JointLoss, ce_ntl, fast, linear_ce_ntl
from ntl.losses.joint import FASTER_FROM

LABELS = torch.tensor([7, 1, -100, 5, 0, 12])
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 8e-3}
SIZE = 5


def logits(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(6, 13, generator=torch.Generator().manual_seed(0)).to(dtype)


def hidden_and_weight(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(rows, SIZE, generator=generator, dtype=dtype) for rows in (6, 13))  # pyright: ignore


def gradient(dtype: torch.dtype = torch.float32, upstream: float = 1.0) -> Tensor:
    leaf = logits(dtype).requires_grad_()
    (ce_ntl(leaf, LABELS, DIGITS, implementation="reference").total * upstream).backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_backward_passes_are_repeated_and_have_no_second_derivative(dtype: torch.dtype, inplace: bool) -> None:
    leaf = logits(dtype).requires_grad_()
    before = leaf.data_ptr()
    total = ce_ntl(leaf, LABELS, DIGITS, implementation="fused", inplace=inplace).total * 3.0
    with pytest.raises(RuntimeError, match="have no second derivative; take 'reference'"):
        torch.autograd.grad(total, leaf, create_graph=True)
    expected = gradient(dtype, 3.0)
    (first,) = torch.autograd.grad(total, leaf, retain_graph=True)
    total.backward()
    assert leaf.grad is not None
    assert (leaf.grad.data_ptr() == before) == inplace  # it takes the place of the logits
    for found in (first, leaf.grad):
        torch.testing.assert_close(found, expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


def test_all_positions_with_a_mask_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ignored rows hold."""
    given, labels = batch((3, 7), torch.float32)
    given = given.masked_fill((labels == -100).unsqueeze(-1), torch.nan)
    head = torch.eye(WIDTH)
    for kind, options in KINDS.items():
        how: dict[str, Any] = {"kind": kind, "implementation": "fused", **options}
        losses = (
            partial(ce_ntl, labels=labels, number_vocab=DIGITS, **how),
            partial(linear_ce_ntl, lm_head_weight=head, labels=labels, number_vocab=DIGITS, **how),
        )
        expected = [value_and_gradients(loss, given) for loss in losses]
        with monkeypatch.context() as patch:
            patch.setattr(fast, "number_index", all_positions)
            for loss, one in zip(losses, expected, strict=True):
                assert_same(value_and_gradients(loss, given), one, 1e-6)


def test_float16_keeps_its_gradient_until_the_loss_scale_arrives_and_saturates() -> None:
    """In a mean over 4,096 rows a probability of 1e-4 has the gradient 2e-8, which float16 cannot represent."""
    wide, labels = torch.zeros(4096, 13), torch.full((4096,), 7)
    wide[:, 1] = -6.0
    found, exact = wide.half().requires_grad_(), wide.double().requires_grad_()
    for leaf, implementation in ((found, "fused"), (exact, "reference")):
        how: dict[str, Any] = {"implementation": implementation}
        (ce_ntl(leaf, labels, DIGITS, **how).total * 65536).backward()
    assert found.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(found.grad.double(), exact.grad, rtol=2e-3, atol=0)
    leaf = torch.zeros(1, 13, dtype=torch.float16, requires_grad=True)
    (ce_ntl(leaf, torch.tensor([3]), DIGITS, kind="mse", weight=1e4, implementation="fused").total * 1e4).backward()
    assert leaf.grad is not None
    assert leaf.grad.abs().max() == torch.inf  # as of torch's CE: a GradScaler then lowers its scale


def test_linear_in_float16_keeps_small_gradients() -> None:
    """Those of the mean over 4,096 rows: of text tokens, of number tokens, of the hidden states and of the bias."""
    hidden, weight = torch.randn(4096, SIZE), torch.randn(13, SIZE)
    leaves = [each.half().requires_grad_() for each in (hidden, weight, torch.zeros(13))]
    wanted = [each.detach().double().requires_grad_() for each in leaves]
    labels = torch.arange(4096) % 13
    for (states, matrix, bias), how in ((leaves, "linear"), (wanted, "reference")):
        found = linear_ce_ntl(states, matrix, labels, DIGITS, bias=bias, implementation=how)
        (found.total * 65536).backward()
    for leaf, exact in zip(leaves, wanted, strict=True):
        assert leaf.grad is not None
        assert exact.grad is not None
        error = (leaf.grad.double() - exact.grad).norm() / exact.grad.norm()
        assert error < 3e-3


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


# ---- rows whose label or number tokens are very unlikely


def assert_exact(given: Tensor, labels: Tensor, atol: float, kind: str = "was", inplace: bool = False) -> Tensor:
    """Compare loss and gradient with the reference in float64; return the gradient."""

    def computed(given: Tensor, **how: Any) -> tuple[JointLoss, list[Tensor]]:
        return value_and_gradients(lambda x: ce_ntl(x, labels, DIGITS, **how), given, upstream=1.0)

    expected, (exact,) = computed(given.double(), kind=kind, implementation="reference")
    found, (gradient,) = computed(given, kind=kind, implementation="fused", inplace=inplace)
    torch.testing.assert_close(found.total.double(), expected.total, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), exact, rtol=ROUNDING[given.dtype], atol=atol)
    return gradient


@settings(max_examples=40)
@given(
    dtype=st.sampled_from(list(ROUNDING)),
    lower=st.sampled_from([5.0, 20.0, 80.0, 120.0, 1000.0, torch.inf]),
    kind=st.sampled_from(["was", "was_vocab"]),
    inplace=st.booleans(),
    rows=st.sampled_from([[4], [0, 5]]),
)
def test_a_label_as_unlikely_as_can_be(
    dtype: torch.dtype, lower: float, kind: str, inplace: bool, rows: list[int]
) -> None:
    """The loss is exact whatever the other rows of the chunk are, and wherever the unlikely label is."""
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(7, 13, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 13, (7,), generator=generator)
    given[rows, labels[rows]] -= lower
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "CPU_CHUNK_BYTES", 3 * 13 * 8 // torch.get_num_threads())
        assert_exact(given, labels, ROUNDING[dtype] / 10, kind=kind, inplace=inplace)


@pytest.mark.parametrize("at", [3e4, -3e4])
def test_large_logits_lose_no_digits_of_the_loss(at: float) -> None:
    """float32 has only three decimals near 30,000."""
    for kind, lower in [
        *product(["ce", "gce", "was", "gce+was_cdf", "was_vocab"], [0.0, 50.0]),
        *product(["ce", "was", "was_vocab"], [torch.inf]),  # the loss of gce would be infinite
    ]:
        given = torch.randn(2, 13, generator=torch.Generator().manual_seed(0)) + at
        labels = torch.tensor([7, 1])
        given[1, 1] -= lower
        expected = ce_ntl(given.double(), labels, DIGITS, kind=kind, implementation="reference")
        for given_logits in (given, given.clone().requires_grad_()):
            found = ce_ntl(given_logits, labels, DIGITS, kind=kind, implementation="fused")
            for one, other in ((found.total, expected.total), (found.base.sum, expected.base.sum)):
                torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=0)
            torch.testing.assert_close(found.number.sum.double(), expected.number.sum, rtol=1e-6, atol=1e-9)
            if lower < torch.inf:  # multiplied by a 0 of the head
                head: dict[str, Any] = {"bias": torch.full((13,), at), "kind": kind, "implementation": "fused"}
                hidden = linear_ce_ntl(given_logits - at, torch.eye(13), labels, DIGITS, **head)
                torch.testing.assert_close(hidden.total, found.total, rtol=1e-6, atol=0)


# ---- from hidden states


def test_a_frozen_weight_costs_no_gradient_and_a_backward_pass_is_repeated() -> None:
    hidden, weight = hidden_and_weight()
    hidden.requires_grad_()
    expected = torch.autograd.grad(ce_ntl(hidden @ weight.t(), LABELS, DIGITS).total, hidden)[0]
    saved: list[tuple[int, ...]] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(tuple(x.shape)) or x, lambda x: x):
        total = linear_ce_ntl(hidden, weight, LABELS, DIGITS, implementation="fused").total * 1.7
    total.backward(retain_graph=True)
    total.backward()
    torch.testing.assert_close(hidden.grad, 2 * 1.7 * expected)
    assert weight.grad is None
    assert tuple(weight.shape) not in saved


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_a_gradient_scaler_and_autocast(dtype: torch.dtype, tolerance: float) -> None:
    """A step of SGD with a gradient scaler equals the step of the reference without one, in either type."""
    weights = []
    for implementation, enabled in (("fused", True), ("reference", False)):
        hidden, weight = hidden_and_weight(torch.float32)
        optimizer = torch.optim.SGD([weight.requires_grad_()], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=enabled)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            joint = linear_ce_ntl(hidden, weight, LABELS, DIGITS, implementation=implementation)
        scaler.scale(joint.total).backward()
        scaler.step(optimizer)
        weights.append(weight.detach())
    torch.testing.assert_close(*weights, rtol=tolerance, atol=tolerance)


def test_the_logits_are_never_there() -> None:
    """Peak memory beyond the inputs is that of the two gradients and of one chunk of logits, 64 of 1,024 rows."""
    rows, width, size = 1024, 8 * FASTER_FROM, 32
    hidden = torch.randn(rows, size, requires_grad=True)
    weight = torch.randn(width, size, requires_grad=True)
    labels = torch.arange(rows) % 13
    peak = peak_bytes(lambda: linear_ce_ntl(hidden, weight, labels, DIGITS).total.backward(), "cpu")
    chunk, gradients = 64 * width * 4, (hidden.numel() + weight.numel()) * 4
    assert peak < gradients + 1.5 * chunk < rows * width * 4 / 4
