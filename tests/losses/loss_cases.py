"""The vocabularies, losses, batches and strategies that the tests in this folder share."""

import functools
import math
import os
import platform
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from ntl import losses
from ntl.losses import JointLoss, ce_ntl, linear_ce_ntl
from ntl.losses.registry import kinds
from ntl.losses.rows import is_number
from ntl.losses.sums import SumCount
from ntl.numbers import NumberVocabulary

TEXT = math.nan
# ids 0 pad, 1 'a', 2 'b', 3..12 the digits 0..9: the vocabulary of the reference values.
DIGITS = NumberVocabulary.from_values([TEXT] * 3 + list(range(10)))
# Unsorted, irregular gaps, equal values, a number at id 0, text in between and at the end.
IRREGULAR = NumberVocabulary.from_values([5.0, TEXT, 0.0, 100.0, TEXT, 7.0, 5.0, -2.5, TEXT])
# Tokens of one to eight digits, as in a published vocabulary.
WIDE = NumberVocabulary.from_values([TEXT, *range(10), 1e3, 1e6, 6.6e7])

Loss = Callable[..., Tensor]


def tokenizer(*tokens: str) -> Any:
    """Return as much of a tokenizer as a loss reads: these tokens with the ids 0, 1, 2, ..."""
    return SimpleNamespace(get_vocab=lambda: {token: place for place, token in enumerate(tokens)})


def ntl_was_squashed(logits: Tensor, labels: Tensor, number_vocab: NumberVocabulary, **options: object) -> Tensor:
    cost = losses.squashed_cost(number_vocab.token_values, 3.0)
    return losses.ntl_was(logits, labels, number_vocab, cost=cost, **options)  # type: ignore[arg-type]


# Those that read the number tokens' logits alone, at number labels alone.
NUMBER_LOSSES: dict[str, Loss] = {
    "digit_cross_entropy": losses.digit_cross_entropy,
    "ntl_mse": losses.ntl_mse,
    "ntl_mae": losses.ntl_mae,
    "ntl_huber": losses.ntl_huber,
    "ntl_huber_2": functools.partial(losses.ntl_huber, delta=2.0),
    "ntl_was": losses.ntl_was,
    "ntl_was_squashed": ntl_was_squashed,
    "ntl_was_cdf": losses.ntl_was_cdf,
    "ntl_was_cdf_sigma": functools.partial(losses.ntl_was_cdf, sigma=1.5),
    "ntl_crps": losses.ntl_crps,
    "smmd": losses.smmd,
    "dist2": losses.dist2,
}
TOKEN_LOSSES: dict[str, Loss] = {
    "cross_entropy": losses.cross_entropy,
    "gaussian_cross_entropy": losses.gaussian_cross_entropy,
    "gaussian_cross_entropy_2": functools.partial(losses.gaussian_cross_entropy, sigma=2.0),
}
LOSSES = NUMBER_LOSSES | TOKEN_LOSSES

# Kinds of `ce_ntl` with options.
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
    "smmd": {},
    "dist2": {"temperature": 3.0},
    "digit_entropy": {"point_id": 2},
    "ntil": {},
    "place_weighted": {"point_id": 2, "distance": "crps"},
    "gce": {"sigma": 1.3},
    "gce+was_cdf": {"sigma": 1.3},
    "was+crps": {},
}
FAST = [kind for kind in sorted({*kinds(), *KINDS}) if kind != "emo"]  # those of "fused", "linear" and "triton"
# Whether Triton's kernels compute tensors of the CPU: on a GPU they are compiled, and it has wheels for Linux alone.
IS_INTERPRETED = "TRITON_INTERPRET" in os.environ and platform.system() == "Linux"
interpreted = pytest.mark.skipif(not IS_INTERPRETED, reason="the kernels of Triton are not interpreted here")
# The rounding of stored values: the gradient in its own type, the loss in float32 or better.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
WIDTH = 16


def batch(
    shape: tuple[int, ...] = (4, 9),
    dtype: torch.dtype = torch.float64,
    share: float = 0.5,
    ignored: float = 0.2,
    seed: int = 1,
) -> tuple[Tensor, Tensor]:
    """Return logits (..., 16), and labels of which about these shares are digits and ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(*shape, WIDTH, generator=generator, dtype=torch.float64) * 3).to(dtype)
    numbers = torch.rand(shape, generator=generator) < share
    labels = torch.where(
        numbers, torch.randint(3, 13, shape, generator=generator), torch.randint(0, 3, shape, generator=generator)
    )
    return logits, labels.masked_fill(torch.rand(shape, generator=generator) < ignored, -100)


def all_positions(labels: Tensor, vocab: NumberVocabulary, ignore_index: int) -> tuple[None, Tensor]:
    """`number_index` as on a GPU, where the number rows are all positions with a mask."""
    return None, is_number(labels, vocab, ignore_index).flatten()


def weights_of(labels: Tensor) -> Tensor:
    """Return weights between 0 and 2, about a fifth of them 0."""
    generator = torch.Generator().manual_seed(2)
    weights = 2 * torch.rand(labels.shape, generator=generator)
    return weights.masked_fill(torch.rand(labels.shape, generator=generator) < 0.2, 0.0)


SHAPES = [(4, 9), (13,), (2, 1, 4), (1,), (), (0,), (2, 0)]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Any `batch`: odd shapes, all types, no numbers or only numbers, all rows or no row ignored."""
    return batch(
        draw(st.sampled_from(SHAPES)),
        draw(st.sampled_from(list(TOLERANCE))),
        share=draw(st.sampled_from([0.5, 0.0, 1.0])),
        ignored=draw(st.sampled_from([0.2, 0.0, 0.95, 1.0])),
        seed=draw(st.integers(0, 99)),
    )


def options_of(kind: str, labels: Tensor, *, smoothing: bool = False, weights: bool = False) -> dict[str, Any]:
    """Return the kind with its options; Gaussian cross-entropy has no smoothing."""
    options = {"kind": kind, **KINDS[kind]}
    options |= {"label_smoothing": 0.2} if smoothing and "gce" not in kind else {}
    return options | ({"loss_weights": weights_of(labels)} if weights else {})


def value_and_gradients(loss: Callable[..., Any], *given: Tensor, upstream: float = 1.7) -> tuple[Any, list[Tensor]]:
    """Return a loss, and the gradients of its total, whose positions have ``upstream`` to twice that as gradients."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in given]
    value = loss(*(leaf.view_as(leaf) for leaf in leaves))  # what is computed in place must not be a leaf
    total = value.total if isinstance(value, JointLoss) else value
    factors = torch.linspace(upstream, 2 * upstream, max(total.numel(), 1), dtype=total.dtype)
    total.backward(factors[: total.numel()].view(total.shape))
    return value, [leaf.grad for leaf in leaves if leaf.grad is not None]


Found = tuple[JointLoss, list[Tensor]]


def of_logits(
    how: str, logits: Tensor, labels: Tensor, vocab: NumberVocabulary = DIGITS, upstream: float = 1.7, **options: Any
) -> Found:
    """Return `ce_ntl` by this implementation, and its gradient."""

    def loss(x: Tensor) -> JointLoss:
        return ce_ntl(x, labels, vocab.to(x.device), implementation=how, **options)

    return value_and_gradients(loss, logits, upstream=upstream)


def of_hidden(how: str, *tensors: Tensor, labels: Tensor, upstream: float = 1.7, **options: Any) -> Found:
    """Return `linear_ce_ntl` of hidden states, weight and, perhaps, bias, and its gradients."""

    def loss(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> JointLoss:
        vocab = DIGITS.to(hidden.device)
        return linear_ce_ntl(hidden, weight, labels, vocab, bias=bias, implementation=how, **options)

    return value_and_gradients(loss, *tensors, upstream=upstream)


def hidden_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return hidden states (..., 8), weight and bias.

    Not an odd number: on processors with AMX, oneDNN's bfloat16 product then adds 0 times the row behind, which is NaN
    where that row is.
    """
    generator = torch.Generator().manual_seed(2)
    sizes = ((*shape, 8), (WIDTH, 8), (WIDTH,))
    return [torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes]


def exact(function: Callable[..., Found], *tensors: Tensor, **options: Any) -> Found:
    """Return loss and gradients by the reference in float64, in the types of the given tensors."""
    found, gradients = function("reference", *(each.double().cpu() for each in tensors), **options)
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    terms = [(each.sum.to(dtype), each.count) for each in (found.base, found.number)]
    terms = [SumCount(total, count.to(dtype) if count.is_floating_point() else count) for total, count in terms]
    gradients = [each.to(tensor.dtype) for each, tensor in zip(gradients, tensors, strict=True)]
    return found._replace(total=found.total.to(dtype), base=terms[0], number=terms[1]), gradients


def assert_same(one: Found, other: Found, tolerance: float) -> None:
    (joint, gradients), (expected, expected_gradients) = one, other
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        assert gradient.dtype == wanted.dtype
        scale = max(wanted.double().abs().max().item(), 1e-3) if wanted.numel() else 1.0
        torch.testing.assert_close(gradient.double(), wanted.double(), rtol=0, atol=tolerance * scale)
    exact = max(min(tolerance, 2e-5), 1e-12)
    for value, wanted in (
        (joint.total, expected.total),
        (joint.base.sum, expected.base.sum),
        (joint.number.sum, expected.number.sum),
    ):
        torch.testing.assert_close(value, wanted, rtol=exact, atol=0)
    for count, wanted in ((joint.base.count, expected.base.count), (joint.number.count, expected.number.count)):
        assert torch.equal(count, wanted)
    assert not joint.base.sum.requires_grad
    assert not joint.number.sum.requires_grad
