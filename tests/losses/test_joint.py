"""`ce_ntl` and `linear_ce_ntl`: every implementation gives the values of the functions, for every kind and setting."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from loss_cases import (
    DIGITS,
    IRREGULAR,
    IS_INTERPRETED,
    KINDS,
    TOLERANCE,
    WIDTH,
    all_positions,
    assert_same,
    batch,
    batches,
    exact,
    hidden_of,
    interpreted,
    of_hidden,
    of_logits,
    options_of,
    weights_of,
)
from torch import Tensor

from ntl import losses
from ntl.benchmarks.timing import peak_bytes
from ntl.losses import ce_ntl, cross_entropy, fast, linear_ce_ntl, registry
from ntl.losses.joint import FASTER_FROM
from ntl.losses.registry import kinds
from ntl.numbers import NumberVocabulary


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Iterator[None]:
    """Split even small batches into several chunks of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "CPU_CHUNK_BYTES", 5 * WIDTH * 4)
        yield


reference_and_fused = pytest.mark.parametrize("implementation", ["reference", "fused"])
fused_and_triton = pytest.mark.parametrize("implementation", ["fused", pytest.param("triton", marks=interpreted)])
HEADS: dict[str, dict[str, Any]] = {"plain": {}, "scaled": {"logit_scale": 0.5}}
HEADS["capped, with a bias"] = {"logit_scale": 0.7, "softcap": 3.0}
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 8e-3}


def assert_fused_is_the_reference(
    logits: Tensor, labels: Tensor, vocab: NumberVocabulary = DIGITS, *, inplace: bool = False, **options: Any
) -> Tensor:
    # In place, what has no gradient leaves the logits as they are.
    frozen = ce_ntl(logits, labels, vocab, implementation="fused", inplace=inplace, **options)
    assert not frozen.total.requires_grad
    expected = of_logits("reference", logits, labels, vocab, **options)
    found = of_logits("fused", logits, labels, vocab, inplace=inplace, **options)
    assert_same(found, expected, TOLERANCE[logits.dtype])
    assert_same((frozen, []), (expected[0], []), TOLERANCE[logits.dtype])
    return found[1][0]


@settings(max_examples=150)
@given(
    kind=st.sampled_from(list(KINDS)),
    given_batch=batches(),
    reduction=st.sampled_from(["mean", "sum", "none", "in place"]),
    smoothing=st.booleans(),
    weights=st.booleans(),
    masks=st.booleans(),
)
def test_fused_is_the_reference(
    kind: str, given_batch: tuple[Tensor, Tensor], reduction: str, smoothing: bool, weights: bool, masks: bool
) -> None:
    """Whatever ignored rows hold, and also by the masks of all positions, as on a GPU."""
    logits, labels = given_batch
    logits = logits.masked_fill((labels == -100).unsqueeze(-1), torch.nan)
    inplace = reduction == "in place" and logits.dtype != torch.float16  # refused
    how: dict[str, Any] = {"weight": 0.7, "reduction": "mean" if reduction == "in place" else reduction}
    how |= options_of(kind, labels, smoothing=smoothing, weights=weights)
    with pytest.MonkeyPatch.context() as patch:
        if masks:
            patch.setattr(fast, "number_index", all_positions)
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
    masks=st.booleans(),
)
def test_linear_is_the_reference(
    kind: str, shape: Any, dtype: torch.dtype, head: str, reduction: str, smoothing: bool, weights: bool, masks: bool
) -> None:
    hidden, labels = hidden_of(shape[0], dtype), batch(shape[0], ignored=shape[1])[1]
    hidden[0] = hidden[0].masked_fill((labels == -100).unsqueeze(-1), torch.nan)
    hidden = hidden if "bias" in head else hidden[:2]
    how = {"reduction": reduction, **HEADS[head], **options_of(kind, labels, smoothing=smoothing, weights=weights)}
    expected = of_hidden("reference", hidden[0].nan_to_num(), *hidden[1:], labels=labels, **how)
    with pytest.MonkeyPatch.context() as patch:
        if masks:
            patch.setattr(fast, "number_index", all_positions)
        given_hidden = hidden[0].nan_to_num() if reduction == "none" else hidden[0]  # which is the reference
        assert_same(of_hidden("linear", given_hidden, *hidden[1:], labels=labels, **how), expected, TOLERANCE[dtype])


def test_numbers_that_cannot_be_have_no_gradient_where_the_label_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU all positions are rows: at text their probability of numbers, which may be 0, is not read."""
    logits, labels = batch((4, 9), torch.float32, ignored=0.0)
    is_text = ~torch.isin(labels, DIGITS.token_ids)
    logits[..., DIGITS.token_ids] -= 1000 * is_text.unsqueeze(-1)
    expected = exact(of_logits, logits, labels=labels, kind="was_vocab")
    monkeypatch.setattr(fast, "number_index", all_positions)
    assert_same(of_logits("fused", logits, labels, kind="was_vocab"), expected, TOLERANCE[torch.float32])


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


def test_masked_digits_equal_values_and_logits_wider_than_the_tokenizer() -> None:
    """-inf on all digits but the label's, and on all of them in a text row; id 0 a number."""
    logits, labels = batch((5,), share=0.0, ignored=0.0)
    labels[2] = 7
    for row in (1, 2):
        masked = logits.clone()
        masked[row, 3:13] = -torch.inf
        masked[2, 7] = 1.0
        for kind, options in KINDS.items():
            # A soft target has mass on a masked token, which is an infinite loss.
            if row == 1 or kind not in ("gce", "gce+was_cdf", "dist2"):
                assert assert_fused_is_the_reference(masked, labels, kind=kind, **options).isfinite().all()
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


# ---- the backward pass, half precision, unlikely labels


@fused_and_triton
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_backward_passes_are_repeated_and_have_no_second_derivative(
    implementation: Any, inplace: bool, dtype: torch.dtype
) -> None:
    logits, labels = batch((6,), dtype)
    (expected,) = exact(of_logits, logits, labels=labels, upstream=3.0)[1]
    leaf = logits.requires_grad_()
    joint = ce_ntl(leaf.view_as(leaf), labels, DIGITS, implementation=implementation, inplace=inplace)
    total = joint.total * 3.0
    with pytest.raises(RuntimeError, match="have no second derivative; take 'reference'"):
        torch.autograd.grad(total, leaf, create_graph=True)
    (first,) = torch.autograd.grad(total, leaf, retain_graph=True)
    total.backward()
    assert leaf.grad is not None
    assert (leaf.grad.data_ptr() == leaf.data_ptr()) == inplace  # it takes the place of the logits
    for found in (first, leaf.grad):
        torch.testing.assert_close(found, expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


@fused_and_triton
def test_float16_keeps_small_gradients_until_the_loss_scale_arrives_and_saturates(implementation: Any) -> None:
    """In a mean over 2^18 labels a probability of 1e-4 has the gradient 4e-10, which float16 cannot represent."""
    logits, labels = torch.zeros(6, WIDTH).half(), torch.tensor([3, 5, 7, 12, 1, 0])
    logits[:, 1] = -6.0
    how: dict[str, Any] = {"labels": labels, "upstream": 2.0**18, "base_count": 2.0**18, "number_count": 2.0**18}
    (found,), (wanted,) = of_logits(implementation, logits, **how)[1], exact(of_logits, logits, **how)[1]
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=0)
    hidden = [each.half() for each in hidden_of((6,))]
    found, wanted = of_hidden(implementation, *hidden, **how)[1], exact(of_hidden, *hidden, **how)[1]
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other).norm() < 3e-3 * other.double().norm()
    leaf = torch.zeros(1, 13, dtype=torch.float16, requires_grad=True)
    large: dict[str, Any] = {"kind": "mse", "weight": 1e4, "implementation": implementation}
    (ce_ntl(leaf, torch.tensor([3]), DIGITS, **large).total * 1e4).backward()
    assert leaf.grad is not None
    assert leaf.grad.abs().max() == torch.inf  # as of torch's CE: a GradScaler then lowers its scale


@fused_and_triton
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_a_gradient_scaler_and_autocast(implementation: Any, dtype: torch.dtype, tolerance: float) -> None:
    """A step of SGD with a gradient scaler equals the step of the reference without one, in either type."""
    labels, weights = torch.tensor([7, 1, -100, 5, 0, 12]), []
    for how, enabled in ((implementation, True), ("reference", False)):
        hidden, weight, _ = hidden_of((6,), torch.float32)
        optimizer = torch.optim.SGD([weight.requires_grad_()], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=enabled)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            joint = linear_ce_ntl(hidden, weight, labels, DIGITS, implementation=how)
        scaler.scale(joint.total).backward()
        scaler.step(optimizer)
        weights.append(weight.detach())
    torch.testing.assert_close(*weights, rtol=tolerance, atol=tolerance)


@settings(max_examples=60)
@given(
    implementation=st.just("fused"),
    dtype=st.sampled_from(list(ROUNDING)),
    lower=st.sampled_from([0.0, 5.0, 20.0, 80.0, 120.0, 1000.0, torch.inf]),
    at=st.sampled_from([0.0, 3e4, -3e4]),
    kind=st.sampled_from(["ce", "gce", "was", "gce+was_cdf", "was_vocab"]),
    inplace=st.booleans(),
    rows=st.sampled_from([[4], [0, 5]]),
)
@example("triton", torch.float32, 120.0, 3e4, "was", True, [0, 5])
@example("triton", torch.float32, torch.inf, -3e4, "was_vocab", False, [4])
@example("triton", torch.bfloat16, 1000.0, 0.0, "gce", True, [4])
@example("triton", torch.float64, 20.0, 0.0, "gce+was_cdf", False, [0, 5])
def test_unlikely_labels_and_large_logits(
    implementation: Any, dtype: torch.dtype, lower: float, at: float, kind: str, inplace: bool, rows: list[int]
) -> None:
    """The loss is exact whatever other rows of the chunk hold, and where float32 has three decimals only."""
    assume(implementation == "fused" or IS_INTERPRETED)
    assume(lower < torch.inf or "gce" not in kind)  # its loss would be infinite
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 13, (7,), generator=generator)
    logits = torch.randn(7, WIDTH, generator=generator, dtype=torch.float64).to(dtype)
    at = at if dtype == torch.float32 else 0.0
    logits += at
    logits[rows, labels[rows]] -= lower
    how: dict[str, Any] = {"labels": labels, "kind": kind, "upstream": 1.0}
    expected, (gradient,) = of_logits("reference", logits.double(), **how)
    found, (of_found,) = of_logits(implementation, logits, inplace=inplace, **how)
    torch.testing.assert_close(of_found.double(), gradient, rtol=ROUNDING[dtype], atol=ROUNDING[dtype] / 10)
    frozen = ce_ntl(logits, labels, DIGITS, kind=kind, implementation=implementation)
    for each in (found, frozen):
        torch.testing.assert_close(each.total.double(), expected.total, rtol=1e-6, atol=0)
        torch.testing.assert_close(each.base.sum.double(), expected.base.sum, rtol=1e-6, atol=0)
        torch.testing.assert_close(each.number.sum.double(), expected.number.sum, rtol=1e-6, atol=1e-9)
    if lower < torch.inf and dtype == torch.float32:  # multiplied by a 0 of the head
        head: dict[str, Any] = {"bias": torch.full((WIDTH,), at), "kind": kind, "implementation": implementation}
        hidden = linear_ce_ntl(logits - at, torch.eye(WIDTH), labels, DIGITS, **head)
        torch.testing.assert_close(hidden.total, found.total, rtol=1e-6, atol=0)


@reference_and_fused
def test_smoothing_of_minus_infinity(implementation: Any) -> None:
    logits, labels = torch.zeros(1, WIDTH), torch.tensor([7])
    how: dict[str, Any] = {"kind": "ce", "implementation": implementation}
    for masked in (2, 7):  # an infinite loss, as in torch
        low = logits.index_fill(1, torch.tensor(masked), -torch.inf)
        for given_logits in (low, low.clone().requires_grad_()):
            assert ce_ntl(given_logits, labels, DIGITS, label_smoothing=0.1, **how).total == torch.inf


# ---- memory


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


def test_a_frozen_weight_costs_no_gradient_and_a_backward_pass_is_repeated() -> None:
    hidden, weight, _ = hidden_of((6,))
    labels = torch.tensor([7, 1, -100, 5, 0, 12])
    hidden.requires_grad_()
    expected = torch.autograd.grad(ce_ntl(hidden @ weight.t(), labels, DIGITS).total, hidden)[0]
    saved: list[tuple[int, ...]] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(tuple(x.shape)) or x, lambda x: x):
        total = linear_ce_ntl(hidden, weight, labels, DIGITS, implementation="fused").total * 1.7
    total.backward(retain_graph=True)
    total.backward()
    torch.testing.assert_close(hidden.grad, 2 * 1.7 * expected)
    assert weight.grad is None
    assert tuple(weight.shape) not in saved


def test_the_logits_are_never_there() -> None:
    """Peak memory beyond the inputs is that of the two gradients and of one chunk of logits, 64 of 1,024 rows."""
    rows, width, size = 1024, 8 * FASTER_FROM, 32
    hidden = torch.randn(rows, size, requires_grad=True)
    weight = torch.randn(width, size, requires_grad=True)
    labels = torch.arange(rows) % 13
    peak = peak_bytes(lambda: linear_ce_ntl(hidden, weight, labels, DIGITS).total.backward(), "cpu")
    chunk, gradients = 64 * width * 4, (hidden.numel() + weight.numel()) * 4
    assert peak < gradients + 1.5 * chunk < rows * width * 4 / 4


# ---- loss_weights


@reference_and_fused
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


@reference_and_fused
def test_a_weight_of_0_removes_an_infinite_loss(implementation: Any) -> None:
    logits, labels = batch((4, 9), torch.float32)
    weights = weights_of(labels)
    none, (gradient,) = of_logits(implementation, logits, labels, loss_weights=torch.zeros(labels.shape))
    assert none.total == 0
    assert not gradient.any()
    assert labels[0, 0] != -100
    weights[0, 0] = 0.0
    expected, (expected_gradient,) = of_logits(implementation, logits, labels, loss_weights=weights)
    logits[0, 0, labels[0, 0]] = -torch.inf
    strange = weights.masked_fill(labels == -100, torch.nan)
    found, (gradient,) = of_logits(implementation, logits, labels, loss_weights=strange)
    assert found.total == expected.total
    torch.testing.assert_close(gradient[1:], expected_gradient[1:])
    assert not gradient[0, 0].any()
    assert gradient.isfinite().all()


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
