import pytest
import torch
from loss_cases import DIGITS, IRREGULAR, point_logits

from ntl.losses import euclidean_cost, ntl_was, squashed_cost

DISTRIBUTION = torch.tensor([0.3, 0.2, 0.1, 0.2, 0.1, 0.1], dtype=torch.float64)
LOGITS = point_logits(DISTRIBUTION, IRREGULAR)


def test_value_by_hand():
    # For the label 7 (id 5), the distances of the values 5, 0, 100, 7, 5, -2.5 are 2, 7, 93, 0, 2, 9.5.
    expected = 0.3 * 2 + 0.2 * 7 + 0.1 * 93 + 0.1 * 2 + 0.1 * 9.5
    assert ntl_was(LOGITS, torch.tensor(5), IRREGULAR).item() == pytest.approx(expected)


def test_the_euclidean_cost_is_the_default():
    labels = IRREGULAR.token_ids
    logits = LOGITS.expand(len(labels), -1)
    cost = euclidean_cost(IRREGULAR.token_values)
    with_cost = ntl_was(logits, labels, IRREGULAR, cost=cost, reduction="none")
    torch.testing.assert_close(with_cost, ntl_was(logits, labels, IRREGULAR, reduction="none"))


def test_the_row_of_a_cost_is_the_label():
    cost = torch.arange(36.0).reshape(6, 6)
    expected = (DISTRIBUTION * torch.arange(12.0, 18.0)).sum()  # id 3 is number token 2
    torch.testing.assert_close(ntl_was(LOGITS, torch.tensor(3), IRREGULAR, cost=cost), expected)


def test_a_cost_has_a_gradient():
    cost = squashed_cost(IRREGULAR.token_values.double(), 3.0).requires_grad_()
    labels = torch.tensor([0, 1, 7])
    logits = torch.randn(3, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, c: ntl_was(x, labels, IRREGULAR, cost=c), (logits, cost))


@pytest.mark.parametrize("shape", [(6,), (6, 5), (9, 9)])
def test_a_cost_of_another_shape(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match="K=6"):
        ntl_was(LOGITS, torch.tensor(0), IRREGULAR, cost=torch.zeros(shape))


def test_its_gradient_is_the_closed_form():
    logits = torch.randn(13, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = ntl_was(logits, torch.tensor(7), DIGITS)
    (gradient,) = torch.autograd.grad(loss, logits)
    q, distance = logits[3:].softmax(-1), (torch.arange(10) - 4).abs()
    torch.testing.assert_close(gradient[3:], q * (distance - loss))
