import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
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


def test_a_cost_of_another_shape():
    for shape in ((6,), (6, 5), (9, 9)):
        with pytest.raises(ValueError, match="K=6"):
            ntl_was(LOGITS, torch.tensor(0), IRREGULAR, cost=torch.zeros(shape))


def test_its_gradient_is_the_closed_form():
    logits = torch.randn(13, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = ntl_was(logits, torch.tensor(7), DIGITS)
    (gradient,) = torch.autograd.grad(loss, logits)
    q, distance = logits[3:].softmax(-1), (torch.arange(10) - 4).abs()
    torch.testing.assert_close(gradient[3:], q * (distance - loss))


# ---- costs


def test_euclidean():
    cost = euclidean_cost(torch.tensor([5.0, 0.0, 100.0, 5.0]))
    assert cost.tolist() == [[0, 5, 95, 0], [5, 0, 100, 5], [95, 100, 0, 95], [0, 5, 95, 0]]


def test_squashed_digits():
    row = squashed_cost(torch.arange(10.0), 3.0)[4]
    torch.testing.assert_close(row, torch.tensor([1.75, 1.5, 1.25, 1, 0, 1, 1.25, 1.5, 1.75, 2]))


def test_squashed_irregular_values():
    cost = squashed_cost(torch.tensor([5.0, 0.0, 100.0, 7.0]), 3.0)
    expected = torch.tensor([1.0, 1.0612, 2.8980, 3.0])
    torch.testing.assert_close(cost[[0, 0, 0, 1], [3, 1, 2, 2]], expected, rtol=0, atol=5e-5)


def test_squashed_costs_at_the_limits():
    """Digits have the factor 9 by themselves; a single distance costs 1; without a distance all is free."""
    torch.testing.assert_close(squashed_cost(range(10), 9.0), euclidean_cost(range(10)))
    assert squashed_cost(torch.tensor([2.0, 7.0, 2.0]), 3.0).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    for values in ([3.0], [3.0, 3.0]):
        assert not squashed_cost(torch.tensor(values), 3.0).any()


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
