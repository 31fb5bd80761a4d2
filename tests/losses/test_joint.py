"""`ce_ntl` and `linear_ce_ntl`: every implementation gives the values of the functions, for every kind and setting."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import (
    DIGITS,
    IRREGULAR,
    KINDS,
    TOLERANCE,
    WIDTH,
    assert_same,
    batch,
    batches,
    options_of,
    value_and_gradients,
    weights_of,
)
from torch import Tensor

from ntl import losses
from ntl.losses import JointLoss, ce_ntl, cross_entropy, fast, linear_ce_ntl, registry
from ntl.losses.joint import FASTER_FROM
from ntl.losses.registry import kinds
from ntl.numbers import NumberVocabulary


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Iterator[None]:
    """Split even small batches into several chunks of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "CPU_CHUNK_BYTES", 5 * WIDTH * 4)
        yield


every_implementation = pytest.mark.parametrize("implementation", ["reference", "fused"])
HEADS: dict[str, dict[str, Any]] = {"plain": {}, "scaled": {"logit_scale": 0.5}}
HEADS["capped, with a bias"] = {"logit_scale": 0.7, "softcap": 3.0, "bias": True}
SIZE = 7


def computed(
    implementation: Any, logits: Tensor, labels: Tensor, vocab: NumberVocabulary = DIGITS, **options: Any
) -> tuple[JointLoss, list[Tensor]]:
    return value_and_gradients(lambda x: ce_ntl(x, labels, vocab, implementation=implementation, **options), logits)


def of_hidden(
    implementation: Any, tensors: list[Tensor], labels: Tensor, bias: bool = False, **options: Any
) -> tuple[JointLoss, list[Tensor]]:
    def loss(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> JointLoss:
        return linear_ce_ntl(hidden, weight, labels, DIGITS, bias=bias, implementation=implementation, **options)

    return value_and_gradients(loss, *tensors[: 3 if bias else 2])


def hidden_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return hidden states, weight and bias."""
    generator = torch.Generator().manual_seed(2)
    sizes = ((*shape, SIZE), (WIDTH, SIZE), (WIDTH,))
    return [torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes]


def assert_fused_is_the_reference(
    logits: Tensor, labels: Tensor, vocab: NumberVocabulary = DIGITS, *, inplace: bool = False, **options: Any
) -> list[Tensor]:
    # In place, what has no gradient leaves the logits as they are.
    frozen = ce_ntl(logits, labels, vocab, implementation="fused", inplace=inplace, **options)
    assert not frozen.total.requires_grad
    expected = computed("reference", logits, labels, vocab, **options)
    found = computed("fused", logits, labels, vocab, inplace=inplace, **options)
    assert_same(found, expected, TOLERANCE[logits.dtype])
    assert_same((frozen, []), (expected[0], []), TOLERANCE[logits.dtype])
    return found[1]


def test_a_base_without_a_target_counts_all_weighted_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_KINDS", kinds())

    def own(logits: Any, labels: Any, number_vocab: Any, *, ignore_index: int, reduction: Any) -> Tensor:
        return cross_entropy(logits, labels, ignore_index=ignore_index, reduction=reduction)

    registry.register("own", own, is_base=True)

    logits, labels = torch.randn(6, WIDTH, dtype=torch.float64), torch.arange(6)  # text and numbers
    weights = torch.linspace(0.5, 2.0, 6, dtype=torch.float64)
    joint = ce_ntl(logits, labels, DIGITS, kind="own", loss_weights=weights)
    expected = (cross_entropy(logits, labels, reduction="none") * weights).sum() / weights.sum()
    torch.testing.assert_close(joint.total, expected)


@settings(max_examples=150)
@given(
    kind=st.sampled_from(list(KINDS)),
    given_batch=batches(),
    reduction=st.sampled_from(["mean", "sum", "none", "in place"]),
    smoothing=st.booleans(),
    weights=st.booleans(),
)
def test_fused_is_the_reference(
    kind: str, given_batch: tuple[Tensor, Tensor], reduction: str, smoothing: bool, weights: bool
) -> None:
    logits, labels = given_batch
    inplace = reduction == "in place" and logits.dtype != torch.float16  # refused
    how: dict[str, Any] = {"weight": 0.7, "reduction": "mean" if reduction == "in place" else reduction}
    how |= options_of(kind, labels, smoothing=smoothing, weights=weights)
    assert_fused_is_the_reference(logits, labels, inplace=inplace, **how)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(list(KINDS)),
    # (3, 60) is more than one chunk of rows.
    shape=st.sampled_from([((3, 60), 0.2), ((), 0.0), ((0,), 0.0), ((2, 5), 1.0), ((2, 200), 0.9)]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    head=st.sampled_from(list(HEADS)),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    smoothing=st.booleans(),
    weights=st.booleans(),
)
def test_linear_is_the_reference(
    kind: str, shape: Any, dtype: torch.dtype, head: str, reduction: str, smoothing: bool, weights: bool
) -> None:
    tensors, labels = hidden_of(shape[0], dtype), batch(shape[0], ignored=shape[1])[1]
    how = {"reduction": reduction, **HEADS[head], **options_of(kind, labels, smoothing=smoothing, weights=weights)}
    expected = of_hidden("reference", tensors, labels, **how)
    assert_same(of_hidden("linear", tensors, labels, **how), expected, TOLERANCE[dtype])


def test_the_parts_are_those_of_the_functions() -> None:
    logits, labels = batch((3, 7))
    functions = {name: kind.function for name, kind in kinds().items() if not kind.is_base}
    rivals = {"smmd", "dist2", "digit_entropy", "ntil", "place_weighted"}
    assert {each.__name__ for each in functions.values()} == {
        name for name in losses.__all__ if name.startswith("ntl_") or name in ("digit_cross_entropy", *rivals)
    }
    for kind, function in functions.items():
        joint = ce_ntl(logits, labels, DIGITS, kind=f"gce+{kind}", weight=0.3, sigma=1.3, **KINDS[kind])
        base = losses.gaussian_cross_entropy(logits, labels, DIGITS, sigma=1.3)
        options = KINDS[kind] | ({"sigma": 1.3} if kind in ("was_cdf", "smmd") else {})
        number = function(logits, labels, DIGITS, **options)
        torch.testing.assert_close(joint.base.sum / joint.base.count, base)
        torch.testing.assert_close(joint.number.sum / joint.number.count, number)
        torch.testing.assert_close(joint.total, base + 0.3 * number)


def test_masked_digits() -> None:
    """-inf on all digits but the label's, and on all of them in a text row."""
    logits, labels = batch((5,), share=0.0, ignored=0.0)
    labels[2] = 7
    for row in (1, 2):
        masked = logits.clone()
        masked[row, 3:13] = -torch.inf
        masked[2, 7] = 1.0
        for kind, options in KINDS.items():
            # A soft target has mass on a masked token, which is an infinite loss.
            if row == 1 or kind not in ("gce", "gce+was_cdf", "dist2"):
                (gradient,) = assert_fused_is_the_reference(masked, labels, kind=kind, **options)
                assert gradient.isfinite().all()


def test_id_0_a_number_equal_values_and_logits_wider_than_the_tokenizer() -> None:
    logits, labels = batch((4, 6))
    for kind in ("was", "was_cdf", "crps", "was_vocab", "mse"):
        assert_fused_is_the_reference(logits, labels.where(labels < 9, 8), IRREGULAR, kind=kind)


def test_gradcheck() -> None:
    """Of the fused way; the functions, of which the reference is made, have their own."""
    logits, labels = batch((1, 5))
    hidden = [tensor.requires_grad_() for tensor in hidden_of((1, 5))]
    for kind in KINDS:
        how: dict[str, Any] = options_of(kind, labels, smoothing=True, weights=True)

        def total(x: Tensor, implementation: Any = "fused", how: dict[str, Any] = how) -> Tensor:
            return ce_ntl(x, labels, DIGITS, implementation=implementation, **how).total

        def linear(hidden: Tensor, weight: Tensor, bias: Tensor, how: dict[str, Any] = how) -> Tensor:
            head: dict[str, Any] = {"bias": bias, "softcap": 3.0, "implementation": "fused"}
            return linear_ce_ntl(hidden, weight, labels, DIGITS, **head, **how).total

        if kind == "ntil":  # straight-through: its gradient is not that of its value
            continue
        assert torch.autograd.gradcheck(total, logits.requires_grad_(), fast_mode=True)
        assert torch.autograd.gradcheck(linear, hidden, fast_mode=True)
        if kind in ("was", "gce", "crps"):
            reference = partial(total, implementation="reference")
            assert torch.autograd.gradgradcheck(reference, logits, fast_mode=True)


def test_auto_takes_what_was_measured_to_be_faster() -> None:
    for width, fused in ((FASTER_FROM - 1, False), (FASTER_FROM, True)):
        total = ce_ntl(torch.zeros(2, width, requires_grad=True), torch.tensor([1, 5]), DIGITS).total
        assert (total.grad_fn is not None and "_Total" in total.grad_fn.name()) == fused


@every_implementation
def test_smoothing_of_minus_infinity(implementation: Any) -> None:
    logits, labels = torch.zeros(1, WIDTH), torch.tensor([7])
    how: dict[str, Any] = {"kind": "ce", "implementation": implementation}
    for masked in (2, 7):  # an infinite loss, as in torch
        low = logits.index_fill(1, torch.tensor(masked), -torch.inf)
        for given_logits in (low, low.clone().requires_grad_()):
            assert ce_ntl(given_logits, labels, DIGITS, label_smoothing=0.1, **how).total == torch.inf


# ---- loss_weights


@every_implementation
def test_weights_by_hand(implementation: Any) -> None:
    """Two number tokens, 0 and 4, and two of text, with even odds; labels: 0 of weight 3, text of weight 1, 4 of weight
    0.5, one ignored, text of weight 0.
    """
    vocab = NumberVocabulary.from_values([0.0, 4.0, math.nan, math.nan])
    logits = torch.zeros(5, 4)
    logits[2] = torch.tensor([0.0, math.log(3), 0.0, 0.0])  # 1/2 on the label 4; among numbers 1/4 on 0 and 3/4 on 4
    labels, weights = torch.tensor([0, 2, 1, -100, 3]), torch.tensor([3.0, 1.0, 0.5, 7.0, 0.0])
    how = {"weight": 0.3, "loss_weights": weights, "implementation": implementation}
    joint = ce_ntl(logits, labels, vocab, **how)
    assert (joint.base.count.item(), joint.number.count.item()) == (4.5, 3.5)
    assert joint.base.sum.item() == pytest.approx(3 * math.log(4) + 1 * math.log(4) + 0.5 * math.log(2))
    # From 0 the expected distance is 2, from 4 it is 1.
    assert joint.number.sum.item() == pytest.approx(3 * 2 + 0.5 * 1)
    assert joint.total.item() == pytest.approx((4 * math.log(4) + 0.5 * math.log(2)) / 4.5 + 0.3 * 6.5 / 3.5)
    each = ce_ntl(logits, labels, vocab, reduction="none", **how).total
    expected = [3 * (math.log(4) + 0.3 * 2), math.log(4), 0.5 * (math.log(2) + 0.3 * 1), 0.0, 0.0]
    assert each.tolist() == pytest.approx(expected)


@every_implementation
def test_zero_weights_and_what_ignored_positions_hold(implementation: Any) -> None:
    logits, labels = batch((4, 9), torch.float32)
    weights = weights_of(labels)
    none, (gradient,) = computed(implementation, logits, labels, loss_weights=torch.zeros(labels.shape))
    assert none.total == 0
    assert not gradient.any()
    assert labels[0, 0] != -100
    weights[0, 0] = 0.0
    expected, (expected_gradient,) = computed(implementation, logits, labels, loss_weights=weights)
    logits[0, 0, labels[0, 0]] = -torch.inf  # an infinite loss, which a weight of 0 removes
    strange = weights.masked_fill(labels == -100, torch.nan)
    found, (gradient,) = computed(implementation, logits, labels, loss_weights=strange)
    assert found.total == expected.total
    torch.testing.assert_close(gradient[1:], expected_gradient[1:])
    assert not gradient[0, 0].any()
    assert gradient.isfinite().all()
