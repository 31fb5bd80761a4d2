"""The squared error of a number head."""

import pytest
import torch
from torch.autograd import gradcheck

from ntl.losses import squared_error

PREDICTIONS = torch.tensor([[1.0, -2.0], [0.5, 8.0]])
TARGETS = torch.tensor([[3.0, -2.0], [0.0, 5.0]])


def test_by_hand() -> None:
    assert squared_error(PREDICTIONS, TARGETS, reduction="none").tolist() == [[4, 0], [0.25, 9]]
    assert squared_error(PREDICTIONS, TARGETS, reduction="sum") == 13.25
    assert squared_error(PREDICTIONS, TARGETS) == 13.25 / 4


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients(reduction) -> None:
    predictions = PREDICTIONS.double().requires_grad_()
    assert gradcheck(lambda x: squared_error(x, TARGETS.double(), reduction=reduction), predictions)


def test_nothing_to_predict_is_zero_with_a_graph() -> None:
    predictions = torch.zeros(0, requires_grad=True)
    loss = squared_error(predictions, torch.zeros(0))
    loss.backward()
    assert loss.item() == 0
    assert predictions.grad is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype: torch.dtype) -> None:
    loss = squared_error(torch.tensor([300.0], dtype=dtype), torch.tensor([0.0]))
    assert loss.dtype == torch.float32
    assert loss == 90_000  # beyond float16


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"predictions \(2, 2\) and targets \(2,\) differ in shape"):
        squared_error(PREDICTIONS, TARGETS[0])
    with pytest.raises(ValueError, match="reduction must be"):
        squared_error(PREDICTIONS, TARGETS, reduction="median")  # type: ignore[arg-type]
