import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ntl.losses import euclidean_cost, squashed_cost


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


def test_digits_have_the_factor_9_by_themselves():
    torch.testing.assert_close(squashed_cost(range(10), 9.0), euclidean_cost(range(10)))


def test_a_single_distance_costs_1():
    assert squashed_cost(torch.tensor([2.0, 7.0, 2.0]), 3.0).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0]])
def test_without_a_distance_all_is_free(values: list[float]):
    assert not squashed_cost(torch.tensor(values), 3.0).any()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.floats(1.001, 100))
def test_squashed_costs_lie_between_1_and_the_factor(values: list[float], factor: float):
    cost = squashed_cost(torch.tensor(values, dtype=torch.float64), factor)
    distance = euclidean_cost(torch.tensor(values, dtype=torch.float64))
    wrong = cost[distance > 0]
    assert torch.equal(cost > 0, distance > 0)
    assert torch.equal(cost, cost.T)
    assert ((wrong >= 1) & (wrong <= factor * (1 + 1e-12))).all()


@pytest.mark.parametrize("factor", [1.0, 0.5, -3.0, math.nan, math.inf])
def test_a_factor_must_be_above_1(factor: float):
    with pytest.raises(ValueError, match="above 1"):
        squashed_cost(torch.arange(10.0), factor)


@pytest.mark.parametrize("values", [[math.nan, 1.0], [math.inf, 1.0], [[1.0, 2.0]]])
def test_values_must_be_numbers(values: list[float]):
    with pytest.raises(ValueError, match="token_values"):
        euclidean_cost(torch.tensor(values))
