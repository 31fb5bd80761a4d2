"""NTL-WAS, its form over the distribution function, CRPS, and the costs of distances."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import IRREGULAR, Loss, point_logits
from scipy.stats import energy_distance, wasserstein_distance
from torch import Tensor

from ntl.losses import (
    euclidean_cost,
    gaussian_cross_entropy,
    gaussian_target,
    ntl_crps,
    ntl_was,
    ntl_was_cdf,
    squashed_cost,
)
from ntl.numbers import NumberVocabulary

VALUES = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 5.0, -3.0]), st.floats(-1e6, 1e6, width=32))


@st.composite
def vocabularies(draw: st.DrawFn) -> NumberVocabulary:
    values = draw(st.lists(st.one_of(VALUES, st.just(math.nan)), max_size=12))
    values.insert(draw(st.integers(0, len(values))), draw(VALUES))
    return NumberVocabulary.from_values(values)


def random_distributions(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).softmax(-1)


def at_every_number(vocab: NumberVocabulary, seed: int) -> tuple[Tensor, Tensor]:
    shape = len(vocab.token_ids), vocab.values.numel()
    logits = 3 * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return logits, vocab.token_ids


@settings(max_examples=30)
@given(vocabularies(), st.integers(0, 2**31))
def test_was_cdf_and_crps_on_any_vocabulary(vocab: NumberVocabulary, seed: int):
    """NTL-WAS-CDF is NTL-WAS, and the Wasserstein distance to any target. CRPS is half the squared energy distance, and
    NTL-WAS less half the spread.
    """
    logits, labels = at_every_number(vocab, seed)
    target = random_distributions(len(labels), len(vocab.token_ids), seed)
    was, cdf, crps = (loss(logits, labels, vocab, reduction="none") for loss in (ntl_was, ntl_was_cdf, ntl_crps))
    distances = ntl_was_cdf(logits, labels, vocab, target=target, reduction="none")
    q, values = logits[:, vocab.token_ids].softmax(-1), vocab.token_values.double()
    close = {"rtol": 1e-9, "atol": 1e-9 * (1 + values.abs().max().item())}
    torch.testing.assert_close(cdf, was, **close)
    spread = torch.einsum("ni,nj,ij->n", q, q, (values[:, None] - values).abs())
    torch.testing.assert_close(crps, was - spread / 2, **close)
    at = values.numpy()
    for row in range(len(labels)):
        expected = wasserstein_distance(at, at, q[row].numpy(), target[row].numpy())
        assert distances[row].item() == pytest.approx(expected, rel=1e-7, abs=1e-7)
        expected = energy_distance(at, at[[row]], q[row].numpy()) ** 2 / 2
        assert crps[row].item() == pytest.approx(expected, rel=1e-7, abs=1e-7)


# Tokens of one to eight digits, as in a published vocabulary.
GAUSSIAN = partial(ntl_was_cdf, sigma=1.5)
WIDE = NumberVocabulary.from_values([math.nan, *range(10), 1e3, 1e6, 6.6e7])


def on_wide_values() -> tuple[Tensor, Tensor]:
    """Return each number as a label twice: with a confident prediction, and with an almost uniform one."""
    logits = torch.randn(2, 13, 14, generator=torch.Generator().manual_seed(0))
    logits[0, :, 11:] -= torch.tensor([6.0, 14.0, 20.0])
    labels = torch.arange(1, 14).expand(2, -1)
    logits[0] += 12.0 * torch.nn.functional.one_hot(labels[0], 14)
    return logits, labels


@pytest.mark.parametrize(("loss", "exact"), [(ntl_was_cdf, ntl_was), (ntl_crps, ntl_crps), (GAUSSIAN, GAUSSIAN)])
def test_float32_on_values_that_span_a_wide_range(loss: Loss, exact: Loss):
    logits, labels = on_wide_values()
    found, expected = logits.requires_grad_(), logits.detach().double().requires_grad_()
    values, exact_values = loss(found, labels, WIDE, reduction="none"), exact(expected, labels, WIDE, reduction="none")
    torch.testing.assert_close(values.double(), exact_values, rtol=1e-3, atol=1e-5)
    (gradient,), (exact_gradient,) = (
        torch.autograd.grad(total.sum(), leaf) for total, leaf in ((values, found), (exact_values, expected))
    )
    largest = exact_gradient.abs().amax(-1, keepdim=True)
    assert ((gradient - exact_gradient).abs() / largest).max() < 1e-3


def test_the_gaussian_option_is_the_gaussian_target():
    logits, labels = at_every_number(IRREGULAR, seed=0)
    target = gaussian_target(IRREGULAR.token_values.double(), IRREGULAR.token_values.double(), 1.5)
    by_target = ntl_was_cdf(logits, labels, IRREGULAR, target=target)
    torch.testing.assert_close(ntl_was_cdf(logits, labels, IRREGULAR, sigma=1.5), by_target)
    gce = gaussian_cross_entropy(logits, labels, IRREGULAR, sigma=1.5)
    log_p = logits.log_softmax(-1)[:, IRREGULAR.token_ids]
    torch.testing.assert_close(gce, -(target * log_p).sum(-1).mean())


def test_a_target_is_read_at_number_labels_only():
    logits, labels = at_every_number(IRREGULAR, seed=0)
    target = random_distributions(len(labels), 6, seed=1)
    expected = ntl_was_cdf(logits[1:], labels[1:], IRREGULAR, target=target[1:])
    target[0] = torch.nan
    assert labels[0] == 0
    torch.testing.assert_close(ntl_was_cdf(logits, labels, IRREGULAR, target=target, ignore_index=0), expected)


def test_targets_that_do_not_fit():
    logits, labels = at_every_number(IRREGULAR, seed=0)
    for how, message in (
        ({"target": torch.zeros(6, 9)}, r"\(6, 6\), not \(6, 9\)"),
        ({"target": torch.zeros(6, 6), "sigma": 1.0}, "not both"),
        ({"sigma": 0.0}, "sigma must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            ntl_was_cdf(logits, labels, IRREGULAR, **how)
    scalar = ntl_was_cdf(logits[0], labels[0], IRREGULAR, target=torch.eye(6)[0])
    torch.testing.assert_close(scalar, ntl_was(logits[0], labels[0], IRREGULAR))


# ---- costs


def test_the_row_of_a_cost_is_the_label_and_distances_are_the_default():
    distribution = torch.tensor([0.3, 0.2, 0.1, 0.2, 0.1, 0.1], dtype=torch.float64)
    logits, cost = point_logits(distribution, IRREGULAR), torch.arange(36.0).reshape(6, 6)
    expected = (distribution * torch.arange(12.0, 18.0)).sum()  # id 3 is number token 2
    torch.testing.assert_close(ntl_was(logits, torch.tensor(3), IRREGULAR, cost=cost), expected)
    # For the label 7 (id 5), the distances of the values 5, 0, 100, 7, 5, -2.5 are 2, 7, 93, 0, 2, 9.5.
    by_hand = 0.3 * 2 + 0.2 * 7 + 0.1 * 93 + 0.1 * 2 + 0.1 * 9.5
    for each in (None, euclidean_cost(IRREGULAR.token_values)):
        assert ntl_was(logits, torch.tensor(5), IRREGULAR, cost=each).item() == pytest.approx(by_hand)
    for shape in ((6,), (6, 5), (9, 9)):
        with pytest.raises(ValueError, match="K=6"):
            ntl_was(logits, torch.tensor(0), IRREGULAR, cost=torch.zeros(shape))


def test_a_cost_has_a_gradient():
    cost = squashed_cost(IRREGULAR.token_values.double(), 3.0).requires_grad_()
    labels = torch.tensor([0, 1, 7])
    logits = torch.randn(3, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, c: ntl_was(x, labels, IRREGULAR, cost=c), (logits, cost))


def test_squashed_costs_by_hand():
    row = squashed_cost(torch.arange(10.0), 3.0)[4]
    torch.testing.assert_close(row, torch.tensor([1.75, 1.5, 1.25, 1, 0, 1, 1.25, 1.5, 1.75, 2]))
    cost = squashed_cost(torch.tensor([5.0, 0.0, 100.0, 7.0]), 3.0)
    expected = torch.tensor([1.0, 1.0612, 2.8980, 3.0])
    torch.testing.assert_close(cost[[0, 0, 0, 1], [3, 1, 2, 2]], expected, rtol=0, atol=5e-5)
    # Digits have the factor 9 by themselves; a single distance costs 1; without a distance all is free.
    torch.testing.assert_close(squashed_cost(range(10), 9.0), euclidean_cost(range(10)))
    assert squashed_cost(torch.tensor([2.0, 7.0, 2.0]), 3.0).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert not squashed_cost(torch.tensor([3.0, 3.0]), 3.0).any()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.floats(1.001, 100))
def test_squashed_costs_lie_between_1_and_the_factor(values: list[float], factor: float):
    cost = squashed_cost(torch.tensor(values, dtype=torch.float64), factor)
    distance = euclidean_cost(torch.tensor(values, dtype=torch.float64))
    wrong = cost[distance > 0]
    assert torch.equal(cost > 0, distance > 0)
    assert torch.equal(cost, cost.T)
    assert ((wrong >= 1) & (wrong <= factor * (1 + 1e-12))).all()


def test_costs_that_cannot_be():
    for factor in (1.0, 0.5, -3.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="above 1"):
            squashed_cost(torch.arange(10.0), factor)
    for values in ([math.nan, 1.0], [math.inf, 1.0], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="token_values"):
            euclidean_cost(torch.tensor(values))
