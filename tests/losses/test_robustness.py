"""Inputs for which earlier implementations returned NaN or inf: loss and gradient are finite and correct."""

import pytest
import torch
from loss_cases import DIGITS, LOSSES, NUMBER_LOSSES, TEXT, TOKEN_LOSSES
from torch import Tensor

from ntl import losses
from ntl.numbers import NumberVocabulary

A, FOUR = 1, 7  # a text token and a digit of DIGITS
DIGIT_IDS = slice(3, 13)

every_loss = pytest.mark.parametrize("name", LOSSES)
number_losses = pytest.mark.parametrize("name", NUMBER_LOSSES)
token_losses = pytest.mark.parametrize("name", TOKEN_LOSSES)


def random_logits(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def loss_and_gradient(name: str, logits: Tensor, labels: Tensor, vocab: NumberVocabulary) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    loss = LOSSES[name](leaf, labels, vocab)
    loss.backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    return loss.detach(), leaf.grad


@every_loss
def test_masked_digits_at_a_text_position(name: str):
    logits, labels = random_logits(3, 13), torch.tensor([FOUR, A, 5])
    logits[1, DIGIT_IDS] = -torch.inf
    loss, gradient = loss_and_gradient(name, logits, labels, DIGITS)
    assert loss.isfinite()
    if name in NUMBER_LOSSES:
        expected, _ = loss_and_gradient(name, logits[[0, 2]], labels[[0, 2]], DIGITS)
        torch.testing.assert_close(loss, expected)
        assert not gradient[1].any()


@every_loss
@pytest.mark.parametrize("vocab", [DIGITS, NumberVocabulary.from_values([*range(10), *[TEXT] * 3])], ids=["", "id 0"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_anything_at_an_ignored_position(name: str, poison: float, vocab: NumberVocabulary):
    logits, labels = random_logits(4, 13), torch.tensor([0, -100, FOUR, -100])
    expected, expected_gradient = loss_and_gradient(name, logits[[0, 2]], labels[[0, 2]], vocab)
    logits[[1, 3]] = poison
    loss, gradient = loss_and_gradient(name, logits, labels, vocab)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient[[0, 2]], expected_gradient)
    assert gradient[2].any()
    assert gradient[0].any() or vocab is DIGITS  # where 0 is text
    assert not gradient[[1, 3]].any()


@number_losses
def test_nan_at_a_text_position_does_not_reach_a_number_loss(name: str):
    logits = random_logits(2, 13)
    logits[1] = torch.nan
    loss, _ = loss_and_gradient(name, logits, torch.tensor([FOUR, A]), DIGITS)
    assert loss.isfinite()


@every_loss
def test_logits_wider_or_narrower_than_the_vocabulary(name: str):
    """A label in the padding of the logits is text."""
    padded = NumberVocabulary.from_values([*DIGITS.values.tolist(), *[TEXT] * 7])
    logits, labels = random_logits(3, 20), torch.tensor([FOUR, A, -100])
    loss, _ = loss_and_gradient(name, logits, labels, DIGITS)
    expected, _ = loss_and_gradient(name, logits, labels, padded)
    assert loss.isfinite()
    torch.testing.assert_close(loss, expected, rtol=0, atol=0)
    in_padding, _ = loss_and_gradient(name, logits, torch.tensor([FOUR, 19, -100]), DIGITS)
    assert in_padding.isfinite()
    if name in NUMBER_LOSSES:
        torch.testing.assert_close(in_padding, LOSSES[name](logits[:1], labels[:1], DIGITS))
        narrow, _ = loss_and_gradient(name, logits[:2, :13], torch.tensor([FOUR, 5]), padded)
        torch.testing.assert_close(narrow, LOSSES[name](logits[:2, :13], torch.tensor([FOUR, 5]), DIGITS))


@every_loss
@pytest.mark.parametrize("poison", [0.0, torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nothing_that_counts(name: str, poison: float, reduction: str):
    label = A if name in NUMBER_LOSSES else -100
    logits = torch.full((2, 3, 13), poison, requires_grad=True)
    loss = LOSSES[name](logits, torch.full((2, 3), label), DIGITS, reduction=reduction)
    assert loss.requires_grad
    assert not loss.any()
    loss.sum().backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@number_losses
def test_all_digits_masked_at_a_number_label_count_as_uniform(name: str):
    logits, labels = random_logits(2, 13), torch.tensor([FOUR, 5])
    uniform = logits.clone()
    logits[0, DIGIT_IDS], uniform[0, DIGIT_IDS] = -torch.inf, 0.0
    loss, gradient = loss_and_gradient(name, logits, labels, DIGITS)
    expected, expected_gradient = loss_and_gradient(name, uniform, labels, DIGITS)
    torch.testing.assert_close(loss, expected)
    assert not gradient[0].any()
    torch.testing.assert_close(gradient[1], expected_gradient[1])


@number_losses
def test_one_digit_masked_at_a_number_label(name: str):
    logits, labels = random_logits(1, 13), torch.tensor([FOUR])
    almost = logits.clone()
    logits[0, 9], almost[0, 9] = -torch.inf, -1e4
    loss, gradient = loss_and_gradient(name, logits, labels, DIGITS)
    expected, expected_gradient = loss_and_gradient(name, almost, labels, DIGITS)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient)
    assert gradient[0, 9] == 0


@pytest.mark.parametrize("name", [name for name in NUMBER_LOSSES if name != "digit_cross_entropy"])
def test_the_digit_of_the_label_masked(name: str):
    logits = random_logits(1, 13)
    logits[0, FOUR] = -torch.inf
    assert loss_and_gradient(name, logits, torch.tensor([FOUR]), DIGITS)[0].isfinite()


@pytest.mark.parametrize("name", ["cross_entropy", "digit_cross_entropy", "gaussian_cross_entropy"])
def test_a_masked_label_costs_infinity_with_a_finite_gradient(name: str):
    logits = random_logits(1, 13)
    logits[0, FOUR] = -torch.inf
    assert loss_and_gradient(name, logits, torch.tensor([FOUR]), DIGITS)[0] == torch.inf


def test_a_masked_digit_beyond_the_gaussian_is_free():
    vocab = NumberVocabulary.from_values([0.0, 1.0, 1000.0])
    logits = torch.tensor([[0.0, 0.0, -torch.inf]])
    loss, _ = loss_and_gradient("gaussian_cross_entropy", logits, torch.tensor([0]), vocab)
    assert loss.item() == pytest.approx(torch.tensor(2.0).log().item())


@every_loss
@pytest.mark.parametrize("scale", [1e4, 1e38])
def test_extreme_logits(name: str, scale: float):
    logits = torch.full((2, 13), -scale)
    logits[0, 12], logits[1, A] = scale, scale
    loss, _ = loss_and_gradient(name, logits / 2, torch.tensor([FOUR, FOUR]), DIGITS)
    assert loss.isfinite()


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "ntl_was_squashed"])  # a cost matrix is K × K
@pytest.mark.parametrize("label", [1, 50_000, 200_000])
def test_two_hundred_thousand_number_tokens_in_float16(name: str, label: int):
    vocab = NumberVocabulary.from_values([TEXT, *range(200_000)])
    logits, labels = random_logits(2, 200_001).half(), torch.tensor([label, 0])
    loss, gradient = loss_and_gradient(name, logits, labels, vocab)
    exact = LOSSES[name](logits.double(), labels, vocab)
    assert gradient.any()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), exact, rtol=1e-4, atol=1e-6)


def test_a_float16_gradient_saturates_where_it_would_overflow():
    vocab = NumberVocabulary.from_values([0.0, 1e4])
    logits = torch.zeros(1, 2, dtype=torch.float16, requires_grad=True)
    losses.ntl_mse(logits, torch.tensor([0]), vocab).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-65504.0, 65504.0]]


@every_loss
def test_autocast_changes_nothing(name: str):
    logits, labels = random_logits(4, 13), torch.tensor([FOUR, 5, A, -100])
    expected = LOSSES[name](logits, labels, DIGITS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = LOSSES[name](logits, labels, DIGITS)
    torch.testing.assert_close(loss, expected, rtol=0, atol=0)


@every_loss
def test_a_single_number_token(name: str):
    vocab = NumberVocabulary.from_values([TEXT, 3.0])
    loss, _ = loss_and_gradient(name, random_logits(2, 2), torch.tensor([1, 1]), vocab)
    assert loss.isfinite()
    if name in NUMBER_LOSSES:
        assert loss == 0


@token_losses
def test_text_alone_is_plain_cross_entropy(name: str):
    logits, labels = random_logits(3, 13), torch.tensor([0, A, 2])
    loss, _ = loss_and_gradient(name, logits, labels, DIGITS)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, labels))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@every_loss
def test_cuda_agrees_with_the_cpu(name: str, dtype: torch.dtype):
    logits, labels = random_logits(3, 13).to(dtype), torch.tensor([FOUR, A, -100])
    expected, expected_gradient = loss_and_gradient(name, logits, labels, DIGITS)
    loss, gradient = loss_and_gradient(name, logits.cuda(), labels.cuda(), DIGITS.to("cuda"))
    torch.testing.assert_close(loss.cpu(), expected)
    torch.testing.assert_close(gradient.cpu(), expected_gradient)
