import functools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import composite
from loss_cases import DIGITS, IRREGULAR, Loss, point_logits
from scipy.stats import energy_distance, wasserstein_distance
from torch import Tensor

from ntl.losses import (
    ce_ntl,
    gaussian_cross_entropy,
    gaussian_target,
    linear_ce_ntl,
    ntl_crps,
    ntl_mae,
    ntl_was,
    ntl_was_cdf,
)
from ntl.numbers import NumberVocabulary

VALUES = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 5.0, -3.0]), st.floats(-1e6, 1e6, width=32))


@composite
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


@given(vocabularies(), st.integers(0, 2**31))
def test_was_cdf_is_was_on_any_vocabulary(vocab: NumberVocabulary, seed: int):
    logits, labels = at_every_number(vocab, seed)
    cdf, was = (loss(logits, labels, vocab, reduction="none") for loss in (ntl_was_cdf, ntl_was))
    torch.testing.assert_close(cdf, was, rtol=1e-9, atol=1e-9 * (1 + vocab.token_values.abs().max().item()))


@given(vocabularies(), st.integers(0, 2**31))
def test_was_cdf_is_the_wasserstein_distance_to_any_target(vocab: NumberVocabulary, seed: int):
    logits, labels = at_every_number(vocab, seed)
    target = random_distributions(len(labels), len(vocab.token_ids), seed)
    distances = ntl_was_cdf(logits, labels, vocab, target=target, reduction="none")
    values = vocab.token_values.double().numpy()
    for row, distance in enumerate(distances.tolist()):
        q = logits[row, vocab.token_ids].softmax(-1).numpy()
        expected = wasserstein_distance(values, values, q, target[row].numpy())
        assert distance == pytest.approx(expected, rel=1e-7, abs=1e-7)


@given(vocabularies(), st.integers(0, 2**31))
def test_crps_is_half_the_squared_energy_distance(vocab: NumberVocabulary, seed: int):
    logits, labels = at_every_number(vocab, seed)
    values = vocab.token_values.double().numpy()
    for row, score in enumerate(ntl_crps(logits, labels, vocab, reduction="none").tolist()):
        q = logits[row, vocab.token_ids].softmax(-1).numpy()
        expected = energy_distance(values, values[[row]], q) ** 2 / 2
        assert score == pytest.approx(expected, rel=1e-7, abs=1e-7)


@given(vocabularies(), st.integers(0, 2**31))
def test_crps_is_was_less_half_the_spread(vocab: NumberVocabulary, seed: int):
    logits, labels = at_every_number(vocab, seed)
    q = logits[:, vocab.token_ids].softmax(-1)
    values = vocab.token_values.double()
    spread = torch.einsum("ni,nj,ij->n", q, q, (values[:, None] - values).abs())
    expected = ntl_was(logits, labels, vocab, reduction="none") - spread / 2
    scale = 1e-9 * (1 + values.abs().max().item())
    torch.testing.assert_close(ntl_crps(logits, labels, vocab, reduction="none"), expected, rtol=1e-9, atol=scale)


def test_equal_values_are_one_outcome():
    # All mass on one of the two tokens of value 5 is a perfect prediction of the other one.
    distribution = torch.tensor([1.0, 0, 0, 0, 0, 0], dtype=torch.float64)
    logits = point_logits(distribution, IRREGULAR)
    for loss in (ntl_was_cdf, ntl_crps, ntl_was):
        assert loss(logits, torch.tensor(6), IRREGULAR).item() == 0


def expected_loss(loss: Loss, prediction: Tensor, truth: Tensor) -> float:
    """Return the mean loss of one prediction over labels drawn from the true distribution."""
    logits = point_logits(prediction, DIGITS).expand(10, -1)
    return float((truth * loss(logits, DIGITS.token_ids, DIGITS, reduction="none")).sum())


SKEWED = torch.tensor([0.40, 0.02, 0.13, 0.15, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05], dtype=torch.float64)
MEDIAN = torch.zeros(10, dtype=torch.float64).index_fill(0, torch.tensor(2), 1.0)  # .40 + .02 + .13 > .5 at 2


# Tokens of one to eight digits, as in a published vocabulary.
WIDE = NumberVocabulary.from_values([math.nan, *range(10), 1e3, 1e6, 6.6e7])


def on_wide_values() -> tuple[Tensor, Tensor]:
    """Return each number as a label twice: with a confident prediction, and with an almost uniform one."""
    logits = torch.randn(2, 13, 14, generator=torch.Generator().manual_seed(0))
    logits[0, :, 11:] -= torch.tensor([6.0, 14.0, 20.0])
    labels = torch.arange(1, 14).expand(2, -1)
    logits[0] += 12.0 * torch.nn.functional.one_hot(labels[0], 14)
    return logits, labels


def row_by_row(logits: Tensor, labels: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the number losses (N,) and their gradients (N, V), each row computed alone."""
    values, gradients = [], []
    for row, label in zip(logits.flatten(0, 1), labels.flatten(), strict=True):
        leaf = row.clone().requires_grad_()
        # With this weight, cross-entropy vanishes in rounding.
        how = {"weight": 1e12, **options}
        if how.pop("linear", False):
            joint = linear_ce_ntl(leaf, torch.eye(14, dtype=row.dtype), label, WIDE, **how)
        else:
            joint = ce_ntl(leaf, label, WIDE, **how)
        joint.total.backward()
        values.append(joint.number.sum)
        assert leaf.grad is not None
        gradients.append(leaf.grad / 1e12)
    return torch.stack(values), torch.stack(gradients)


@pytest.mark.parametrize(
    "how",
    [{"implementation": "reference"}, {"implementation": "fused"}, {"implementation": "fused", "linear": True}],
    ids=["reference", "fused", "linear"],
)
@pytest.mark.parametrize(
    ("kind", "exact"), [("was_cdf", "was"), ("crps", "crps"), ("was_cdf+crps", "was+crps")], ids=str
)
def test_float32_on_values_that_span_a_wide_range(kind: str, exact: str, how: dict[str, Any]):
    logits, labels = on_wide_values()
    values, gradients = row_by_row(logits, labels, kind=kind, **how)
    expected, expected_gradients = row_by_row(logits.double(), labels, kind=exact, implementation="reference")
    torch.testing.assert_close(values.double(), expected, rtol=1e-3, atol=1e-5)
    largest = expected_gradients.abs().amax(-1, keepdim=True)
    assert ((gradients - expected_gradients).abs() / largest).max() < 1e-3


def test_a_wide_range_by_hand():
    # For the label 4, a mass of e^-20 on 66,000,000 costs 0.136. The digits share nearly all other mass, at an average
    # distance of 2.5.
    logits = torch.zeros(14)
    logits[11:] = torch.tensor([-200.0, -200.0, -20.0])
    far = math.exp(-20)
    expected = (sum(abs(4 - digit) for digit in range(10)) + far * (6.6e7 - 4)) / (10 + far)
    assert ntl_was_cdf(logits, torch.tensor(5), WIDE).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", [functools.partial(ntl_was_cdf, sigma=1.5), ntl_was_cdf])
def test_a_gaussian_target_on_wide_values(loss: Loss):
    logits, labels = on_wide_values()
    exact = loss(logits.double(), labels, WIDE, reduction="none")
    torch.testing.assert_close(loss(logits, labels, WIDE, reduction="none").double(), exact, rtol=1e-3, atol=1e-5)


def test_crps_is_proper():
    truth = expected_loss(ntl_crps, SKEWED, SKEWED)
    assert truth < expected_loss(ntl_crps, MEDIAN, SKEWED)
    for prediction in random_distributions(200, 10, seed=0):
        for step in (0.01, 0.1, 1.0):
            moved = SKEWED + step * (prediction - SKEWED)
            assert truth < expected_loss(ntl_crps, moved, SKEWED)


@pytest.mark.parametrize("loss", [ntl_was, ntl_was_cdf, ntl_mae])
def test_was_and_mae_are_not_proper(loss: Loss):
    at_the_truth = expected_loss(loss, SKEWED, SKEWED)
    at_the_median = expected_loss(loss, MEDIAN, SKEWED)
    assert at_the_median < at_the_truth - 0.05


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


def test_gradients_to_logits_and_target():
    logits, labels = at_every_number(IRREGULAR, seed=0)
    target = random_distributions(len(labels), 6, seed=1)
    leaves = logits.requires_grad_(), target.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, t: ntl_was_cdf(x, labels, IRREGULAR, target=t), leaves)
    assert torch.autograd.gradcheck(lambda x: ntl_was_cdf(x, labels, IRREGULAR, sigma=1.5), leaves[:1])


def test_targets_that_do_not_fit():
    logits, labels = at_every_number(IRREGULAR, seed=0)
    with pytest.raises(ValueError, match=r"\(6, 6\), not \(6, 9\)"):
        ntl_was_cdf(logits, labels, IRREGULAR, target=torch.zeros(6, 9))
    with pytest.raises(ValueError, match="not both"):
        ntl_was_cdf(logits, labels, IRREGULAR, target=torch.zeros(6, 6), sigma=1.0)
    with pytest.raises(ValueError, match="sigma must be positive"):
        ntl_was_cdf(logits, labels, IRREGULAR, sigma=0.0)
    scalar = ntl_was_cdf(logits[0], labels[0], IRREGULAR, target=torch.eye(6)[0])
    torch.testing.assert_close(scalar, ntl_was(logits[0], labels[0], IRREGULAR))
