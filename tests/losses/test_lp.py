import pytest
import torch
from loss_cases import IRREGULAR, point_logits
from torch.autograd import gradcheck

from ntl.losses import ntl_huber, ntl_mae, ntl_mse, squared_error

# In the order of the token ids 0, 2, 3, 5, 6, 7, the values are 5, 0, 100, 7, 5, -2.5; the expectation is 24.
LOGITS = point_logits(torch.tensor([0.2, 0.2, 0.2, 0.2, 0.1, 0.1], dtype=torch.float64), IRREGULAR)
EXPECTATION = 0.2 * (5 + 0 + 100 + 7) + 0.1 * (5 - 2.5)


@pytest.mark.parametrize(("token_id", "value"), [(0, 5.0), (3, 100.0), (7, -2.5)])
def test_values_by_hand(token_id: int, value: float):
    label, error = torch.tensor(token_id), abs(EXPECTATION - value)
    assert ntl_mse(LOGITS, label, IRREGULAR).item() == pytest.approx(error**2)
    assert ntl_mae(LOGITS, label, IRREGULAR).item() == pytest.approx(error)
    assert ntl_huber(LOGITS, label, IRREGULAR).item() == pytest.approx(error - 0.5)
    assert ntl_huber(LOGITS, label, IRREGULAR, delta=3.0).item() == pytest.approx(3 * (error - 1.5))
    assert ntl_huber(LOGITS, label, IRREGULAR, delta=100.0).item() == pytest.approx(error**2 / 2)


# ---- a number head

PREDICTIONS = torch.tensor([[1.0, -2.0], [0.5, 8.0]])
TARGETS = torch.tensor([[3.0, -2.0], [0.0, 5.0]])


def test_squared_error_by_hand() -> None:
    assert squared_error(PREDICTIONS, TARGETS, reduction="none").tolist() == [[4, 0], [0.25, 9]]
    assert squared_error(PREDICTIONS, TARGETS, reduction="sum") == 13.25
    assert squared_error(PREDICTIONS, TARGETS) == 13.25 / 4
    predictions = PREDICTIONS.double().requires_grad_()
    for how in ("mean", "sum", "none"):
        assert gradcheck(lambda x, how=how: squared_error(x, TARGETS.double(), reduction=how), predictions)


def test_no_squared_error_is_zero_with_a_graph() -> None:
    predictions = torch.zeros(0, requires_grad=True)
    loss = squared_error(predictions, torch.zeros(0))
    loss.backward()
    assert loss.item() == 0
    assert predictions.grad is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_squared_error_half_types_are_computed_in_float32(dtype: torch.dtype) -> None:
    loss = squared_error(torch.tensor([300.0], dtype=dtype), torch.tensor([0.0]))
    assert loss.dtype == torch.float32
    assert loss == 90_000  # beyond float16


def test_squared_error_mistakes() -> None:
    with pytest.raises(ValueError, match=r"predictions \(2, 2\) and targets \(2,\) differ in shape"):
        squared_error(PREDICTIONS, TARGETS[0])
    with pytest.raises(ValueError, match="reduction must be"):
        squared_error(PREDICTIONS, TARGETS, reduction="median")  # type: ignore[arg-type]
