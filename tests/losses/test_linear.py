"""The loss from hidden states equals the loss of their logits, without computing all of these at once."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import DIGITS, KINDS, WIDTH, assert_same, options_of, value_and_gradients
from torch import Tensor

from ntl.benchmarks.timing import peak_bytes
from ntl.losses import JointLoss, linear_ce_ntl, ntl_was
from ntl.losses.fused import chunks
from ntl.losses.fused.joint import FASTER_FROM
from ntl.losses.fused.linear import LMHead, linear_number_rows
from ntl.losses.wasserstein import was_rows

HEADS: dict[str, tuple[bool, dict[str, Any]]] = {
    "plain": (False, {}),
    "bias and scale": (True, {"logit_scale": 0.5}),
    "cap": (True, {"logit_scale": 0.7, "softcap": 3.0}),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
SIZE = 7
CPU_CHUNK_BYTES = chunks.CPU_CHUNK_BYTES

pytestmark = pytest.mark.usefixtures("small_chunks")
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def example(shape: tuple[int, ...], dtype: torch.dtype, ignored: float = 0.2) -> Inputs:
    """Return hidden states, weight, bias and labels."""
    generator = torch.Generator().manual_seed(2)
    tensors = [torch.randn(*size, generator=generator).to(dtype) for size in ((*shape, SIZE), (WIDTH, SIZE), (WIDTH,))]
    labels = torch.randint(0, 14, shape, generator=generator)
    hidden, weight, bias = tensors
    return hidden, weight, bias, labels.masked_fill(torch.rand(shape, generator=generator) < ignored, -100)


def computed(
    implementation: Any, inputs: Inputs, with_bias: bool = False, **options: Any
) -> tuple[JointLoss, list[Tensor]]:
    hidden, weight, bias, labels = inputs

    def loss(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> JointLoss:
        return linear_ce_ntl(hidden, weight, labels, DIGITS, bias=bias, implementation=implementation, **options)

    return value_and_gradients(loss, hidden, weight, *([bias] if with_bias else []))


@settings(max_examples=15)
@given(
    # (3, 60) is more than one chunk of rows.
    shape=st.sampled_from([((3, 60), 0.2), ((), 0.0), ((0,), 0.0), ((2, 5), 1.0), ((2, 200), 0.9)]),
    dtype=st.sampled_from(list(TOLERANCE)),
    head=st.sampled_from(list(HEADS)),
    reduction=st.sampled_from(["mean", "sum"]),
    smoothing=st.booleans(),
    weights=st.booleans(),
)
def test_fused_is_the_reference(
    shape: Any, dtype: torch.dtype, head: str, reduction: str, smoothing: bool, weights: bool
) -> None:
    (with_bias, settings), inputs = HEADS[head], example(shape[0], dtype, shape[1])
    for kind in KINDS:
        options = {"reduction": reduction, **settings}
        options |= options_of(kind, inputs[-1], smoothing=smoothing, weights=weights)
        expected = computed("reference", inputs, with_bias, **options)
        assert_same(computed("fused", inputs, with_bias, **options), expected, TOLERANCE[dtype])


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
    for loss, given_tensors in ((tied, [weight]), (adapted, [low, up])):
        results = [value_and_gradients(partial(loss, how), *given_tensors) for how in ("reference", "fused")]
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


def test_two_backwards() -> None:
    inputs = example((2, 20), torch.float64)
    _, expected = computed("reference", inputs)
    hidden, weight, _, labels = inputs
    weight.requires_grad_()
    total = linear_ce_ntl(hidden, weight, labels, DIGITS, implementation="fused").total * 1.7
    total.backward(retain_graph=True)
    total.backward()
    torch.testing.assert_close(weight.grad, 2 * expected[1])


def test_ntl_was_of_the_number_tokens_logits_alone() -> None:
    hidden, weight, bias, labels = example((3, 5), torch.float64)
    for with_bias, options in HEADS.values():
        head = LMHead(weight, bias if with_bias else None, options.get("logit_scale", 1.0), options.get("softcap"))
        expected = ntl_was(head.logits(hidden), labels, DIGITS, reduction="sum")
        rows = linear_number_rows(hidden, head, labels, DIGITS, -100)
        assert float(was_rows(rows).sum()) == pytest.approx(float(expected), rel=1e-12)
        assert expected > 0
        assert len(linear_number_rows(hidden, head, torch.full_like(labels, -100), DIGITS, -100).targets_N) == 0


def test_autocast_is_that_of_the_product() -> None:
    inputs = example((3, 60), torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(computed("fused", inputs), computed("reference", inputs), 2e-2)


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


def test_misuse_is_one_line() -> None:
    hidden, weight, _, labels = example((2, 3), torch.float32)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"implementation": "fast"}, "implementation must be 'auto', 'reference', 'fused', 'linear', not 'fast'"),
        ({"implementation": "fused", "reduction": "none"}, "needs the reduction 'mean' or 'sum'"),
        ({"implementation": "fused", "reduction": "avg"}, "reduction must be"),
        ({"kind": "wass"}, "kind 'wass' is none of"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            linear_ce_ntl(hidden, weight, labels, DIGITS, **options)
    with pytest.raises(ValueError, match=r"do not fit: \(2, 3, 7\), \(16, 6\), \(2, 3\)"):
        linear_ce_ntl(hidden, weight[:, 1:], labels, DIGITS)
