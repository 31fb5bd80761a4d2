"""loss_weights: one per label, which multiplies both losses of its position and replaces 1 in the denominators."""

import math
from typing import Any

import pytest
import torch
from loss_cases import DIGITS
from torch import Tensor

from ntl import NumberTokenLoss
from ntl.losses import ce_ntl, linear_ce_ntl
from ntl.losses.fused import chunks
from ntl.losses.fused.joint import JointLoss
from ntl.numbers import NumberVocabulary

KINDS: dict[str, dict[str, Any]] = {
    "ce": {},
    "ce+was": {"label_smoothing": 0.1},
    "was": {},
    "was_cdf": {},
    "was_vocab": {"text_cost": 7.5},
    "mse": {},
    "crps": {},
    "digit_ce": {},
    "number_level": {"point_id": 2},
    "gce": {"sigma": 1.3},
    "gce+was_cdf": {"sigma": 1.3},
}
WIDTH = 16
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}
every_implementation = pytest.mark.parametrize("implementation", ["reference", "fused"])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", 5 * WIDTH * 4)


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = (torch.randn(4, 9, WIDTH, generator=generator, dtype=torch.float64) * 3).to(dtype)
    labels = torch.randint(0, 13, (4, 9), generator=generator)
    labels = labels.masked_fill(torch.rand(4, 9, generator=generator) < 0.2, -100)
    weights = 2 * torch.rand(4, 9, generator=generator)
    return logits, labels, weights.masked_fill(torch.rand(4, 9, generator=generator) < 0.2, 0.0)


def computed(given: Tensor, loss: Any) -> tuple[JointLoss, Tensor]:
    leaf = given.clone().requires_grad_()
    joint = loss(leaf)
    joint.total.sum().backward()
    assert leaf.grad is not None
    return joint, leaf.grad


@every_implementation
def test_by_hand(implementation: Any) -> None:
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@every_implementation
def test_it_is_each_positions_loss_times_its_weight(implementation: Any, reduction: str, kind: str) -> None:
    """The expected value is computed from the unweighted loss of each position and the sums of weights."""
    logits, labels, weights = example()
    how = {"kind": kind, "weight": 0.7, "implementation": "reference", **KINDS[kind]}
    own = how | {"implementation": implementation, "reduction": reduction, "loss_weights": weights}

    def by_hand(given: Tensor) -> JointLoss:
        alone = how | {"weight": 0.0, "reduction": "none"}
        base = ce_ntl(given, labels, DIGITS, **alone).total * weights
        number = (ce_ntl(given, labels, DIGITS, **{**alone, "weight": 1.0}).total * weights) - base
        joint = ce_ntl(given, labels, DIGITS, **own)
        if reduction == "none":
            return joint._replace(total=base + 0.7 * number)
        counts = (joint.base.count, joint.number.count.clamp(min=1e-9)) if reduction == "mean" else (1, 1)
        return joint._replace(total=base.sum() / counts[0] + 0.7 * number.sum() / counts[1])

    found, gradient = computed(logits, lambda x: ce_ntl(x, labels, DIGITS, **own))
    expected, expected_gradient = computed(logits, by_hand)
    torch.testing.assert_close(found.total, expected.total)
    torch.testing.assert_close(gradient, expected_gradient)
    assert found.base.count.item() == pytest.approx(weights[labels != -100].sum().item())
    with torch.no_grad():
        torch.testing.assert_close(ce_ntl(logits, labels, DIGITS, **own).total, expected.total)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_fused_is_the_reference(kind: str, dtype: torch.dtype, inplace: bool) -> None:
    logits, labels, weights = example(dtype)
    how = {"kind": kind, "loss_weights": weights, **KINDS[kind]}
    expected, gradient = computed(logits, lambda x: ce_ntl(x, labels, DIGITS, implementation="reference", **how))
    own = {"implementation": "fused", "inplace": inplace}
    found, found_gradient = computed(logits, lambda x: ce_ntl(x.view_as(x), labels, DIGITS, **own, **how))
    scale = gradient.double().abs().max().item()
    assert (found_gradient.double() - gradient.double()).abs().max().item() <= TOLERANCE[dtype] * scale
    for one, other in zip((*found.base, *found.number), (*expected.base, *expected.number), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_from_hidden_states(kind: str) -> None:
    _, labels, weights = example()
    generator = torch.Generator().manual_seed(0)
    hidden, head = (torch.randn(*size, 5, generator=generator, dtype=torch.float64) for size in ((4, 9), (WIDTH,)))
    how = {"labels": labels, "number_vocab": DIGITS, "kind": kind, "loss_weights": weights, **KINDS[kind]}
    results = [
        computed(hidden, lambda h, name=name: linear_ce_ntl(h, head, implementation=name, **how))
        for name in ("reference", "fused")
    ]
    torch.testing.assert_close(results[0], results[1])


@every_implementation
@pytest.mark.parametrize("kind", ["ce+was", "gce+was_cdf", "was_vocab"])
def test_gradcheck(kind: str, implementation: Any) -> None:
    logits, labels, weights = (tensor[:1, :5] for tensor in example())
    how = {"kind": kind, "loss_weights": weights, "implementation": implementation, **KINDS[kind]}
    leaf = logits.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ce_ntl(x, labels, DIGITS, **how).total, leaf)


@every_implementation
def test_ones_change_nothing_and_a_common_factor_no_mean(implementation: Any) -> None:
    logits, labels, _ = example()
    for kind, options in KINDS.items():
        how = {"kind": kind, "implementation": implementation, **options}
        expected, gradient = computed(logits, lambda x, how=how: ce_ntl(x, labels, DIGITS, **how))
        for factor in (1, 1e-3, 50.0):
            own = how | {"loss_weights": torch.full(labels.shape, factor)}
            found, found_gradient = computed(logits, lambda x, own=own: ce_ntl(x, labels, DIGITS, **own))
            torch.testing.assert_close(found.total, expected.total, rtol=1e-6, atol=0)
            torch.testing.assert_close(found_gradient, gradient, rtol=1e-6, atol=1e-12)


@every_implementation
def test_zero_weights_and_what_ignored_positions_hold(implementation: Any) -> None:
    logits, labels, weights = example(torch.float32)
    how: dict[str, Any] = {"implementation": implementation}
    none, gradient = computed(
        logits, lambda x: ce_ntl(x, labels, DIGITS, loss_weights=torch.zeros(labels.shape), **how)
    )
    assert none.total == 0
    assert not gradient.any()
    expected = ce_ntl(logits, labels, DIGITS, loss_weights=weights, **how).total
    strange = weights.masked_fill(labels == -100, torch.nan)
    assert ce_ntl(logits, labels, DIGITS, loss_weights=strange, **how).total == expected
    impossible = logits.clone()
    impossible[0, 0, labels[0, 0]] = -torch.inf  # an infinite loss, which a weight of 0 removes
    without = weights.clone()
    without[0, 0] = 0.0
    assert labels[0, 0] != -100
    found, gradient = computed(impossible, lambda x: ce_ntl(x, labels, DIGITS, loss_weights=without, **how))
    assert found.total.isfinite()
    assert gradient.isfinite().all()
    assert not gradient[0, 0].any()


def test_a_single_position_and_weights_without_a_gradient() -> None:
    weight = torch.tensor(2.0, requires_grad=True)
    for implementation in ("reference", "fused"):
        how: dict[str, Any] = {"implementation": implementation, "reduction": "sum", "loss_weights": weight}
        total = ce_ntl(torch.zeros(13, requires_grad=True), torch.tensor(3), DIGITS, kind="ce", **how).total
        total.backward()
        assert total.item() == pytest.approx(2 * math.log(13))
        assert weight.grad is None


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(3), r"loss_weights must have labels' shape \(2, 2\), not \(3,\)"),
        (torch.ones(2, 1), r"not \(2, 1\)"),
        (torch.tensor([[1.0, 1.0], [1.0, -0.5]]), "loss_weights must be finite and not negative, not -0.5"),
        (torch.tensor([[1.0, torch.nan], [1.0, 1.0]]), "not nan"),
        (torch.tensor([[1.0, torch.inf], [1.0, 1.0]]), "not inf"),
    ],
)
def test_weights_that_do_not_fit(weights: Tensor, message: str) -> None:
    labels = torch.tensor([[1, 5], [6, 2]])
    for implementation in ("reference", "fused"):
        how: dict[str, Any] = {"implementation": implementation, "loss_weights": weights}
        with pytest.raises(ValueError, match=message):
            ce_ntl(torch.zeros(2, 2, 13), labels, DIGITS, **how)
        with pytest.raises(ValueError, match=message):
            linear_ce_ntl(torch.zeros(2, 2, 5), torch.zeros(13, 5), labels, DIGITS, **how)
    for shift in (True, False):
        with pytest.raises(ValueError, match=message):
            NumberTokenLoss(DIGITS, shift=shift)(torch.zeros(2, 2, 13), labels, loss_weights=weights)


# ---- the module


def test_a_weight_is_shifted_with_its_label() -> None:
    logits, labels, weights = example()
    loss = NumberTokenLoss(DIGITS, shift=True)
    expected = ce_ntl(logits[:, :-1], labels[:, 1:], DIGITS, loss_weights=weights[:, 1:]).total
    torch.testing.assert_close(loss(logits, labels, loss_weights=weights), expected)
    torch.testing.assert_close(loss.parts(logits, labels, loss_weights=weights).total, expected)
    torch.testing.assert_close(loss({"logits": logits}, labels, loss_weights=weights), expected)
    head = torch.eye(WIDTH, dtype=torch.float64)
    torch.testing.assert_close(loss.linear(logits, head, labels, loss_weights=weights), expected)


def test_over_the_sum_of_the_steps_weights() -> None:
    """CE adds up to the step's weighted mean; the number loss is weighted by each micro-batch's share of the weight."""
    logits, labels, weights = example()
    loss = NumberTokenLoss(DIGITS, shift=False)
    whole = weights[labels != -100].sum()
    halves = [slice(0, 2), slice(2, 4)]
    alone = [loss.parts(logits[half], labels[half], loss_weights=weights[half]) for half in halves]
    cut = [
        loss.parts(logits[half], labels[half], loss_weights=weights[half], num_items_in_batch=whole) for half in halves
    ]
    total = sum(part.base.count / whole * part.total for part in alone)
    torch.testing.assert_close(sum(part.total for part in cut), total)
    expected = loss.parts(logits, labels, loss_weights=weights).base
    torch.testing.assert_close(sum(part.base.sum for part in cut) / whole, expected.sum / expected.count)
    ones = torch.ones(labels.shape)
    for items in (30, torch.tensor(30)):
        found = loss(logits, labels, loss_weights=ones, num_items_in_batch=items)
        torch.testing.assert_close(found, loss(logits, labels, num_items_in_batch=items))


def test_it_compiles_without_a_graph_break() -> None:
    logits, labels, weights = example()
    loss = NumberTokenLoss(DIGITS, shift=True, label_smoothing=0.1)
    torch._dynamo.reset()
    run = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found = run(logits, labels, loss_weights=weights, num_items_in_batch=torch.tensor(30))
    expected = loss(logits, labels, loss_weights=weights, num_items_in_batch=torch.tensor(30))
    torch.testing.assert_close(found, expected)
