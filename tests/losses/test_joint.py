"""One test body over every implementation, kind, type, shape and reduction: all give the values of the reference."""

import math
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, IRREGULAR
from torch import Tensor

from ntl import losses
from ntl.losses.fused import chunks
from ntl.losses.fused.joint import FASTER_FROM, JointLoss, ce_ntl
from ntl.losses.fused.passes import chunked_pass
from ntl.numbers import NumberVocabulary

KINDS: dict[str, dict[str, Any]] = {
    "ce": {},
    "was": {},
    "was_cdf": {},
    "was_vocab": {"text_cost": 7.5},
    "mse": {},
    "mae": {},
    "huber": {"delta": 2.0},
    "crps": {},
    "digit_ce": {},
    "number_level": {"point_id": 2},
    "gce": {"sigma": 1.3},
    "gce+was_cdf": {"sigma": 1.3},
    "was+crps": {},
}
# The rounding of stored values: the gradient in its own type, the loss in float32 or better.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
WIDTH = 16


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", 5 * WIDTH * 4)


def example(
    shape: tuple[int, ...], dtype: torch.dtype, share: float = 0.5, ignored: float = 0.2
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = (torch.randn(*shape, WIDTH, generator=generator, dtype=torch.float64) * 3).to(dtype)
    numbers = torch.rand(shape, generator=generator) < share
    labels = torch.where(
        numbers, torch.randint(3, 13, shape, generator=generator), torch.randint(0, 3, shape, generator=generator)
    )
    return logits, labels.masked_fill(torch.rand(shape, generator=generator) < ignored, -100)


def computed(
    implementation: Any,
    logits: Tensor,
    labels: Tensor,
    upstream: float = 1.0,
    vocab: NumberVocabulary = DIGITS,
    **options: Any,
) -> tuple[JointLoss, Tensor]:
    leaf = logits.clone().requires_grad_()
    joint = ce_ntl(leaf, labels, vocab, implementation=implementation, **options)
    factors = torch.linspace(upstream, 2 * upstream, max(joint.total.numel(), 1), dtype=joint.total.dtype)
    joint.total.backward(factors[: joint.total.numel()].view(joint.total.shape))
    assert leaf.grad is not None
    return joint, leaf.grad


def assert_same(one: tuple[JointLoss, Tensor], other: tuple[JointLoss, Tensor], tolerance: float) -> None:
    (joint, gradient), (expected, expected_gradient) = one, other
    assert gradient.dtype == expected_gradient.dtype
    scale = max(expected_gradient.double().abs().max().item(), 1e-3) if expected_gradient.numel() else 1.0
    torch.testing.assert_close(gradient.double(), expected_gradient.double(), rtol=0, atol=tolerance * scale)
    exact = max(min(tolerance, 2e-5), 1e-12)
    for value, wanted in [
        (joint.total, expected.total),
        (joint.base.sum, expected.base.sum),
        (joint.number.sum, expected.number.sum),
    ]:
        assert value.dtype == wanted.dtype
        torch.testing.assert_close(value, wanted, rtol=exact, atol=exact * 10)
    assert (joint.base.count, joint.number.count) == (expected.base.count, expected.number.count)
    assert not joint.base.sum.requires_grad
    assert not joint.number.sum.requires_grad


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_fused_is_the_reference(kind: str, dtype: torch.dtype, reduction: str) -> None:
    for shape in [(3, 7), (13,), (2, 1, 4)]:
        logits, labels = example(shape, dtype)
        options = {"kind": kind, "reduction": reduction, "weight": 0.7, **KINDS[kind]}
        expected = computed("reference", logits, labels, 1.7, **options)
        assert_same(computed("fused", logits, labels, 1.7, **options), expected, TOLERANCE[dtype])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("share", "ignored"), [(0.0, 0.0), (1.0, 0.0), (0.5, 0.95), (0.0, 1.0)])
def test_any_share_of_numbers_and_of_ignored_rows(share: float, ignored: float, kind: str) -> None:
    logits, labels = example((4, 9), torch.float64, share, ignored)
    expected = computed("reference", logits, labels, kind=kind, **KINDS[kind])
    assert_same(computed("fused", logits, labels, kind=kind, **KINDS[kind]), expected, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,)], ids=str)
def test_odd_shapes(shape: tuple[int, ...], kind: str) -> None:
    logits, labels = example(shape, torch.float64, ignored=0.0)
    expected = computed("reference", logits, labels, kind=kind, **KINDS[kind])
    assert_same(computed("fused", logits, labels, kind=kind, **KINDS[kind]), expected, 1e-12)
    without_gradient = ce_ntl(logits, labels, DIGITS, kind=kind, implementation="fused", **KINDS[kind])
    torch.testing.assert_close(without_gradient.total, expected[0].total.detach())


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_are_those_of_the_functions(kind: str) -> None:
    logits, labels = example((3, 7), torch.float64)
    joint = ce_ntl(logits, labels, DIGITS, kind=kind, weight=0.3, implementation="fused", **KINDS[kind])
    base = losses.gaussian_cross_entropy(logits, labels, DIGITS, sigma=1.3) if "gce" in kind else None
    base = losses.cross_entropy(logits, labels) if base is None else base
    number = joint.number.sum / joint.number.count
    torch.testing.assert_close(joint.base.sum / joint.base.count, base)
    torch.testing.assert_close(joint.total, base + 0.3 * number)


def test_denominators_of_a_whole_step() -> None:
    """Two halves, divided by the counts of both, add up to the whole: batch 8 equals 8 accumulated batches of 1."""
    logits, labels = example((4, 9), torch.float64)
    whole, gradient = computed("fused", logits, labels)
    counts = {"base_count": whole.base.count, "number_count": whole.number.count}
    halves = [computed("fused", logits[i : i + 2], labels[i : i + 2], **counts) for i in (0, 2)]
    torch.testing.assert_close(sum(half[0].total for half in halves), whole.total)
    torch.testing.assert_close(torch.cat([half[1] for half in halves]), gradient)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_anything_in_an_ignored_row(kind: str, poison: float) -> None:
    logits, labels = example((3, 7), torch.float32)
    expected = computed("fused", logits, labels, kind=kind, **KINDS[kind])
    poisoned = logits.masked_fill((labels == -100).unsqueeze(-1), poison)
    assert_same(computed("fused", poisoned, labels, kind=kind, **KINDS[kind]), expected, 1e-7)


@pytest.mark.parametrize("number_row", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gce+was_cdf"])
def test_masked_digits(kind: str, number_row: bool) -> None:
    """-inf on all digits but the label's, and on all of them in a text row."""
    logits, labels = example((5,), torch.float64, share=0.0, ignored=0.0)
    labels[2] = 7
    logits[2 if number_row else 1, 3:13] = -torch.inf
    if number_row:
        logits[2, 7] = 1.0
        if "gce" in kind:
            return  # a soft target has mass on a masked token, which is an infinite loss
    expected = computed("reference", logits, labels, kind=kind, **KINDS[kind])
    fused = computed("fused", logits, labels, kind=kind, **KINDS[kind])
    assert fused[1].isfinite().all()
    assert_same(fused, expected, 1e-12)


def test_id_0_a_number_equal_values_and_logits_wider_than_the_tokenizer() -> None:
    logits, labels = example((4, 6), torch.float64)
    labels = labels.where(labels < 9, 8)
    for kind in ("was", "was_cdf", "crps", "was_vocab", "mse"):
        expected = computed("reference", logits, labels, vocab=IRREGULAR, kind=kind)
        assert_same(computed("fused", logits, labels, vocab=IRREGULAR, kind=kind), expected, 1e-12)


def test_a_million_number_tokens_in_float16() -> None:
    vocab = NumberVocabulary.from_values([math.nan, *range(1_000_000)])
    logits = torch.randn(1, 1_000_001, generator=torch.Generator().manual_seed(0)).half()
    joint, gradient = computed("fused", logits, torch.tensor([500_000]), vocab=vocab, weight=1e-6)
    exact, _ = computed("reference", logits.double(), torch.tensor([500_000]), vocab=vocab, weight=1e-6)
    assert gradient.isfinite().all()
    torch.testing.assert_close(joint.total.double(), exact.total, rtol=1e-4, atol=0)


def test_very_unlikely_labels_are_exact() -> None:
    """The log-sum-exp is never computed from a probability that has underflowed."""
    logits = torch.zeros(2, WIDTH)
    logits[0, 5], logits[1, 1] = -300.0, 1e4
    joint, gradient = computed("fused", logits, torch.tensor([5, 7]))
    expected, _ = computed("reference", logits.double(), torch.tensor([5, 7]))
    torch.testing.assert_close(joint.total.double(), expected.total, rtol=1e-6, atol=0)
    assert gradient.isfinite().all()


def test_gradients_are_as_exact_as_their_type() -> None:
    logits, labels = example((64, 8), torch.float64)
    for dtype, limit in ((torch.float32, 1e-6), (torch.bfloat16, 2e-3)):
        rounded = logits.to(dtype)
        _, exact = computed("reference", rounded.double(), labels)
        _, gradient = computed("fused", rounded, labels)
        known = exact != 0
        assert ((gradient.double() - exact)[known] / exact[known]).abs().median() < limit


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kind": "wass"},
            "kind 'wass' is none of ce, gce, crps, digit_ce, huber, mae, mse, number_level, was, was_cdf, was_vocab",
        ),
        ({"kind": "was", "sigma": 1.0}, "kind 'was' takes no option 'sigma', only cost"),
        ({"kind": "ce+gce"}, "more than one base"),
        ({"kind": "was+number_level"}, "they cannot be one mean"),
        (
            {"implementation": "fast"},
            "implementation must be 'auto', 'reference', 'fused', 'linear', 'triton', not 'fast'",
        ),
        ({"implementation": "linear"}, "needs hidden states: give them to linear_ce_ntl, or take 'fused'"),
        ({"reduction": "avg"}, "reduction must be"),
        ({"inplace": True, "implementation": "reference"}, "inplace=True needs implementation"),
        ({"inplace": True, "implementation": "fused", "reduction": "none"}, "inplace=True needs implementation"),
    ],
)
def test_misuse_is_one_line(options: dict[str, Any], message: str) -> None:
    logits, labels = example((2, 3), torch.float32)
    with pytest.raises(ValueError, match=message):
        ce_ntl(logits, labels, DIGITS, **options)


@pytest.mark.parametrize("label", [WIDTH, -7])
def test_a_label_that_is_no_token(label: int) -> None:
    with pytest.raises(IndexError, match=rf"label {label} is not a token id in \[0, 16\)"):
        ce_ntl(torch.zeros(1, WIDTH), torch.tensor([label]), DIGITS, implementation="fused")


def test_auto_takes_what_was_measured_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = chunked_pass
    monkeypatch.setattr("ntl.losses.fused.joint.chunked_pass", lambda *args: (calls.append(1), original(*args))[1])
    for width, fused in ((FASTER_FROM - 1, False), (FASTER_FROM, True)):
        calls.clear()
        ce_ntl(torch.zeros(2, width, requires_grad=True), torch.tensor([1, 5]), DIGITS)
        assert bool(calls) == fused
