"""label_smoothing agrees with torch's cross-entropy in every implementation and together with every number loss."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loss_cases import DIGITS
from torch import Tensor

from ntl.losses import ce_ntl, cross_entropy, linear_ce_ntl
from ntl.losses.fused import chunks
from ntl.losses.fused.joint import FASTER_FROM, JointLoss
from ntl.numbers import NumberVocabulary

KINDS = ["ce", "was", "mse", "was_vocab", "digit_ce", "number_level"]
WIDTH = 17
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}

INPLACE = [torch.float64, torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", 5 * WIDTH * 4)


def example(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = (torch.randn(4, 9, WIDTH, generator=generator, dtype=torch.float64) * 3).to(dtype)
    labels = torch.randint(0, 14, (4, 9), generator=generator)
    return logits, labels.masked_fill(torch.rand(4, 9, generator=generator) < 0.2, -100)


def gradient_of(given: Tensor, loss: Any) -> tuple[Any, Tensor]:
    leaf = given.clone().requires_grad_()
    found = loss(leaf)
    total = found.total if isinstance(found, JointLoss) else found
    (total * torch.arange(1.0, total.numel() + 1, dtype=total.dtype).view(total.shape)).sum().backward()
    assert leaf.grad is not None
    return found, leaf.grad


@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_by_hand(implementation: Any) -> None:
    """The label has the probability 1/2 and three others 1/6 each: with 0.4 spread over the four, 0.7 of the target is
    the label and 0.1 each of the others.
    """
    logits = torch.tensor([[0.0, math.log(3), 0.0, 0.0]])
    how = {"kind": "ce", "label_smoothing": 0.4, "implementation": implementation}
    total = ce_ntl(logits, torch.tensor([1]), NumberVocabulary.from_values([0.0, 1.0]), **how).total
    assert total.item() == pytest.approx(0.7 * math.log(2) + 0.3 * math.log(6))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("implementation", ["auto", "reference", "fused"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_it_is_torchs_cross_entropy(smoothing: float, implementation: Any, reduction: str) -> None:
    logits, labels = example(torch.float64)

    def by_torch(given: Tensor) -> Tensor:
        flat = F.cross_entropy(given.flatten(0, 1), labels.flatten(), label_smoothing=smoothing, reduction=reduction)
        return flat.view(labels.shape) if reduction == "none" else flat

    how = {"kind": "ce", "reduction": reduction, "label_smoothing": smoothing, "implementation": implementation}
    expected, gradient = gradient_of(logits, by_torch)
    found, found_gradient = gradient_of(logits, lambda given: ce_ntl(given, labels, DIGITS, **how))
    torch.testing.assert_close(found.total, expected)
    torch.testing.assert_close(found_gradient, gradient)
    with torch.no_grad():
        torch.testing.assert_close(ce_ntl(logits, labels, DIGITS, **how).total, expected)


@pytest.mark.parametrize(
    ("dtype", "inplace"), [*((dtype, False) for dtype in TOLERANCE), *((dtype, True) for dtype in INPLACE)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_fused_is_the_reference(kind: str, dtype: torch.dtype, inplace: bool) -> None:
    logits, labels = example(dtype)
    how = {"kind": kind, "weight": 0.7, "label_smoothing": 0.2}
    expected, gradient = gradient_of(logits, lambda x: ce_ntl(x, labels, DIGITS, implementation="reference", **how))
    own = {"implementation": "fused", "inplace": inplace}
    found, found_gradient = gradient_of(logits, lambda x: ce_ntl(x.view_as(x), labels, DIGITS, **own, **how))
    scale = gradient.double().abs().max().item()
    assert (found_gradient.double() - gradient.double()).abs().max().item() <= TOLERANCE[dtype] * scale
    for one, other in ((found.total, expected.total), (found.base.sum, expected.base.sum)):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["ce", "was", "was_vocab"])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_from_hidden_states(softcap: float | None, kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(*size, 5, generator=generator, dtype=torch.float64) for size in ((4, 9), (WIDTH,)))
    _, labels = example(torch.float64)
    how = {"kind": kind, "label_smoothing": 0.2, "softcap": softcap, "number_vocab": DIGITS, "labels": labels}
    results = [
        gradient_of(hidden, lambda h, name=name: linear_ce_ntl(h, weight, implementation=name, **how))
        for name in ("reference", "fused")
    ]
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_gradcheck(implementation: Any) -> None:
    logits, labels = example(torch.float64)
    how = {"kind": "was", "label_smoothing": 0.2, "implementation": implementation}
    leaf = logits[:1, :4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ce_ntl(x, labels[:1, :4], DIGITS, **how).total, leaf)


def test_a_large_vocabulary_on_auto() -> None:
    logits = torch.randn(3, FASTER_FROM, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([5, -100, FASTER_FROM - 1])
    expected, gradient = gradient_of(logits, lambda x: F.cross_entropy(x, labels, label_smoothing=0.1))
    found, own = gradient_of(logits, lambda x: ce_ntl(x, labels, DIGITS, kind="ce", label_smoothing=0.1))
    torch.testing.assert_close(found.total, expected)
    torch.testing.assert_close(own, gradient)


@pytest.mark.parametrize("masked", [2, 7])
def test_minus_infinity_somewhere_is_an_infinite_loss_as_in_torch(masked: int) -> None:
    logits = torch.zeros(1, WIDTH)
    logits[0, masked] = -torch.inf
    labels = torch.tensor([7])
    assert F.cross_entropy(logits, labels, label_smoothing=0.1) == torch.inf
    for implementation in ("reference", "fused"):
        how: dict[str, Any] = {"kind": "ce", "label_smoothing": 0.1, "implementation": implementation}
        assert ce_ntl(logits, labels, DIGITS, **how).total == torch.inf
        assert ce_ntl(logits.clone().requires_grad_(), labels, DIGITS, **how).total == torch.inf


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 2.0, float("nan")])
def test_smoothing_out_of_its_range(smoothing: float) -> None:
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1"):
        cross_entropy(torch.zeros(1, 4), torch.tensor([2]), label_smoothing=smoothing)
    for implementation in ("reference", "fused"):
        how: dict[str, Any] = {"label_smoothing": smoothing, "implementation": implementation}
        with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1"):
            ce_ntl(torch.zeros(1, 13), torch.tensor([2]), DIGITS, **how)
