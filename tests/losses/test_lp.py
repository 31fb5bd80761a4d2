import pytest
import torch
from loss_cases import IRREGULAR, point_logits

from ntl.losses import ntl_huber, ntl_mae, ntl_mse

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
