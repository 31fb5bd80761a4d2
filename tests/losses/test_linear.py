"""The loss from hidden states equals the loss of their logits, without computing all of these at once."""

from functools import partial
from typing import Any

import pytest
import torch
from loss_cases import CASES, DIGITS, KINDS, WIDTH, assert_same, options_of, value_and_gradients
from torch import Tensor

from ntl.benchmarks.timing import peak_bytes
from ntl.losses import JointLoss, linear_ce_ntl, ntl_was
from ntl.losses.fused import chunks
from ntl.losses.fused.joint import FASTER_FROM
from ntl.losses.fused.linear import LMHead, linear_number_rows
from ntl.losses.wasserstein import was_rows

HEADS = {
    "plain": (False, {}),
    "bias and scale": (True, {"logit_scale": 0.5}),
    "cap": (True, {"logit_scale": 0.7, "softcap": 3.0}),
}
SIZE = 7
CPU_CHUNK_BYTES = chunks.CPU_CHUNK_BYTES


pytestmark = pytest.mark.usefixtures("small_chunks")


def example(shape: tuple[int, ...], dtype: torch.dtype, ignored: float = 0.2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return hidden states, weight, bias and labels."""
    generator = torch.Generator().manual_seed(2)
    tensors = [torch.randn(*size, generator=generator).to(dtype) for size in ((*shape, SIZE), (WIDTH, SIZE), (WIDTH,))]
    labels = torch.randint(0, 14, shape, generator=generator)
    hidden, weight, bias = tensors
    return hidden, weight, bias, labels.masked_fill(torch.rand(shape, generator=generator) < ignored, -100)


def computed(
    implementation: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], with_bias: bool = False, **options: Any
) -> tuple[JointLoss, list[Tensor]]:
    hidden, weight, bias, labels = inputs

    def loss(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> JointLoss:
        return linear_ce_ntl(hidden, weight, labels, DIGITS, bias=bias, implementation=implementation, **options)

    return value_and_gradients(loss, hidden, weight, *([bias] if with_bias else []))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize(("kind", "extra"), CASES)
def test_fused_is_the_reference(kind: str, extra: str, dtype: torch.dtype, tolerance: float, head: str) -> None:
    if extra != "plain" and dtype != torch.float64:
        return
    with_bias, settings = HEADS[head]
    inputs = example((3, 60), dtype)  # more than one chunk of rows
    for reduction in ("mean", "sum"):
        options = {"reduction": reduction, **settings, **options_of(kind, extra, inputs[-1])}
        expected = computed("reference", inputs, with_bias, **options)
        assert_same(computed("fused", inputs, with_bias, **options), expected, tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "ignored"), [((), 0.0), ((0,), 0.0), ((2, 5), 1.0), ((2, 200), 0.9)])
def test_odd_shapes(shape: tuple[int, ...], ignored: float, kind: str) -> None:
    inputs = example(shape, torch.float64, ignored)
    expected = computed("reference", inputs, kind=kind, **KINDS[kind])
    assert_same(computed("fused", inputs, kind=kind, **KINDS[kind]), expected, 1e-12)


def test_nan_in_an_ignored_row() -> None:
    hidden, weight, bias, labels = example((2, 40), torch.float64)
    expected = computed("fused", (hidden, weight, bias, labels))
    poisoned = hidden.masked_fill((labels == -100).unsqueeze(-1), torch.nan)
    assert_same(computed("fused", (poisoned, weight, bias, labels)), expected, 1e-12)


def test_the_embedding_as_the_head_and_a_computed_weight_such_as_an_adapters() -> None:
    hidden, weight, _, labels = example((2, 20), torch.float64)

    def tied(implementation: Any, embedding: Tensor) -> JointLoss:
        hidden = torch.tanh(embedding[labels.clamp(min=0)])
        return linear_ce_ntl(hidden, embedding, labels, DIGITS, implementation=implementation)

    def adapted(implementation: Any, low: Tensor, up: Tensor) -> JointLoss:
        return linear_ce_ntl(hidden, weight + up @ low, labels, DIGITS, implementation=implementation)

    low, up = torch.ones(2, SIZE, dtype=torch.float64), torch.full((WIDTH, 2), 0.1, dtype=torch.float64)
    for loss, given in ((tied, [weight]), (adapted, [low, up])):
        results = [
            value_and_gradients(partial(loss, implementation), *given) for implementation in ("reference", "fused")
        ]
        torch.testing.assert_close(results[0], results[1])


def test_a_frozen_weight_costs_no_gradient() -> None:
    hidden, weight, _, labels = example((2, 20), torch.float32)
    hidden.requires_grad_()
    saved: list[tuple[int, ...]] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(tuple(x.shape)) or x, lambda x: x):
        total = linear_ce_ntl(hidden, weight, labels, DIGITS, implementation="fused").total
    total.backward()
    assert weight.grad is None
    assert hidden.grad is not None
    assert tuple(weight.shape) not in saved


def test_without_gradients() -> None:
    hidden, weight, _, labels = example((2, 20), torch.float32)
    expected = linear_ce_ntl(hidden, weight, labels, DIGITS, implementation="reference")
    with torch.no_grad():
        joint = linear_ce_ntl(hidden, weight.requires_grad_(), labels, DIGITS, implementation="fused")
    assert not joint.total.requires_grad
    torch.testing.assert_close(joint.total, expected.total)


@pytest.mark.parametrize("head", HEADS)
def test_ntl_was_of_the_number_tokens_logits_alone(head: str) -> None:
    with_bias, options = HEADS[head]
    hidden, weight, bias, labels = example((3, 5), torch.float64)
    made = LMHead(weight, bias if with_bias else None, options.get("logit_scale", 1.0), options.get("softcap"))
    expected = ntl_was(made.logits(hidden), labels, DIGITS, reduction="sum")
    rows = linear_number_rows(hidden, made, labels, DIGITS, -100)
    assert float(was_rows(rows).sum()) == pytest.approx(float(expected), rel=1e-12)
    assert expected > 0
    assert len(linear_number_rows(hidden, made, torch.full_like(labels, -100), DIGITS, -100).targets_N) == 0


def test_two_backwards() -> None:
    inputs = example((2, 20), torch.float64)
    _, expected = computed("reference", inputs)
    hidden, weight, _, labels = inputs
    weight.requires_grad_()
    total = linear_ce_ntl(hidden, weight, labels, DIGITS, implementation="fused").total * 1.7
    total.backward(retain_graph=True)
    total.backward()
    torch.testing.assert_close(weight.grad, 2 * expected[1])


def test_autocast_is_that_of_the_product() -> None:
    inputs = example((3, 60), torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = computed("reference", inputs)
        fused = computed("fused", inputs)
    assert_same(fused, expected, 2e-2)


def test_the_logits_are_never_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peak memory beyond the inputs is that of the two gradients and of one chunk of logits, 64 of 1,024 rows."""
    monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", CPU_CHUNK_BYTES)
    rows, width, size = 1024, 4 * FASTER_FROM, 32
    hidden = torch.randn(rows, size, requires_grad=True)
    weight = torch.randn(width, size, requires_grad=True)
    labels = torch.arange(rows) % 13
    peak = peak_bytes(lambda: linear_ce_ntl(hidden, weight, labels, DIGITS).total.backward(), "cpu")
    chunk, gradients = 64 * width * 4, (hidden.numel() + weight.numel()) * 4
    assert peak < gradients + 1.5 * chunk < rows * width * 4 / 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"implementation": "fast"}, "implementation must be 'auto', 'reference', 'fused', 'linear', not 'fast'"),
        ({"implementation": "fused", "reduction": "none"}, "needs the reduction 'mean' or 'sum'"),
        ({"implementation": "fused", "reduction": "avg"}, "reduction must be"),
        ({"kind": "wass"}, "kind 'wass' is none of"),
    ],
)
def test_misuse_is_one_line(options: dict[str, Any], message: str) -> None:
    hidden, weight, _, labels = example((2, 3), torch.float32)
    with pytest.raises(ValueError, match=message):
        linear_ce_ntl(hidden, weight, labels, DIGITS, **options)
    with pytest.raises(ValueError, match=r"do not fit: \(2, 3, 7\), \(16, 6\), \(2, 3\)"):
        linear_ce_ntl(hidden, weight[:, 1:], labels, DIGITS)
