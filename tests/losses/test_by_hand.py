"""Values by hand, and those that the original implementation returns for hand-made inputs, to 1e-5."""

import math

import pytest
import torch
from loss_cases import DIGITS, IRREGULAR, LOSSES, NUMBER_LOSSES, all_positions, point_logits
from torch import Tensor
from torch.autograd import gradcheck

from ntl import losses
from ntl.losses import count_numbers, ntl_mae, ntl_number_level, ntl_was, rows, squared_error
from ntl.losses.rows import number_rows
from ntl.losses.sums import diagnostic_sums

A, POINT, ZERO = 1, 2, 3
LABEL = ZERO + 4
COLUMNS = ("ntl_mse", "ntl_mae", "ntl_huber", "ntl_was", "ntl_was_cdf")


def zeros_but(entries: dict[int, float], fill: float = 0.0) -> Tensor:
    logits = torch.full((13,), fill)
    for token_id, logit in entries.items():
        logits[token_id] = logit
    return logits


ONE_POSITION = {
    "uniform": (torch.zeros(13), (0.25, 0.5, 0.125, 2.5, 2.5)),
    "text mass is ignored": (zeros_but({1: 100.0}), (0.25, 0.5, 0.125, 2.5, 2.5)),
    "half on 0, half on 8": (zeros_but({3: 0.0, 11: 0.0}, fill=-1e4), (0.0, 0.0, 0.0, 4.0, 4.0)),
    "all on 4": (zeros_but({7: 0.0}, fill=-1e4), (0.0, 0.0, 0.0, 0.0, 0.0)),
    "all on 0": (zeros_but({3: 0.0}, fill=-1e4), (16.0, 4.0, 3.5, 4.0, 4.0)),
    "all on 3": (zeros_but({6: 0.0}, fill=-1e4), (1.0, 1.0, 0.5, 1.0, 1.0)),
    "all on 9": (zeros_but({12: 0.0}, fill=-1e4), (25.0, 5.0, 4.5, 5.0, 5.0)),
    "a slope of 0.3": (0.3 * torch.arange(13.0), (7.105751, 2.665661, 2.165661, 3.184556, 3.184556)),
}


@pytest.mark.parametrize("case", ONE_POSITION)
def test_one_position(case: str) -> None:
    logits, expected = ONE_POSITION[case]
    found = [NUMBER_LOSSES[name](logits[None, None], torch.tensor([[LABEL]]), DIGITS).item() for name in COLUMNS]
    assert found == pytest.approx(expected, abs=1e-5)


def test_mixed_batch() -> None:
    logits, labels = torch.zeros(2, 3, 13), torch.tensor([[3, 1, 7], [12, 2, 0]])
    logits[0, 0, 3], logits[0, 1, 1], logits[0, 2, 12] = 2.0, 3.0, 1.0
    logits[1, 0, 5], logits[1, 1, 8], logits[1, 2, 2] = -1.0, 4.0, 0.5
    expected = {"ntl_mse": 9.214839, "ntl_mae": 2.745629, "ntl_huber": 2.245629, "ntl_was": 3.314541}
    expected |= {"ntl_was_cdf": 3.314541, "cross_entropy": 2.241605, "gaussian_cross_entropy": 2.384822}
    found = {name: LOSSES[name](logits, labels, DIGITS).item() for name in expected}
    assert found == pytest.approx(expected, abs=1e-5)
    assert losses.ntl_was_cdf(logits, labels, DIGITS, sigma=1.0).item() == pytest.approx(2.725286, abs=1e-5)


@pytest.mark.parametrize(("token_id", "value"), [(0, 5.0), (3, 100.0), (7, -2.5)])
def test_an_expectation_over_irregular_values(token_id: int, value: float) -> None:
    # In the order of the token ids 0, 2, 3, 5, 6, 7, the values are 5, 0, 100, 7, 5, -2.5; the expectation is 22.65.
    logits = point_logits(torch.tensor([0.2, 0.2, 0.2, 0.2, 0.1, 0.1], dtype=torch.float64), IRREGULAR)
    label, error = torch.tensor(token_id), abs(0.2 * (5 + 0 + 100 + 7) + 0.1 * (5 - 2.5) - value)
    assert losses.ntl_mse(logits, label, IRREGULAR).item() == pytest.approx(error**2)
    assert losses.ntl_mae(logits, label, IRREGULAR).item() == pytest.approx(error)
    for delta, expected in ((1.0, error - 0.5), (3.0, 3 * (error - 1.5)), (100.0, error**2 / 2)):
        assert losses.ntl_huber(logits, label, IRREGULAR, delta=delta).item() == pytest.approx(expected)


def test_digit_cross_entropy_is_over_the_digits_alone_and_knows_no_distance() -> None:
    logits = torch.zeros(1, 13)
    logits[0, 1] = 50.0
    assert losses.digit_cross_entropy(logits, torch.tensor([LABEL]), DIGITS).item() == pytest.approx(math.log(10))
    for other in (8, 12):  # 5 and 9 instead of 4
        logits[0, other] = math.log(9)
        assert losses.digit_cross_entropy(logits, torch.tensor([LABEL]), DIGITS).item() == pytest.approx(math.log(18))
        logits[0, other] = 0.0


# ---- Gaussian


def test_the_gaussian_target() -> None:
    target = losses.gaussian_target(torch.tensor([0.0, 4.0]), torch.arange(10.0), 1.0)
    assert target.sum(-1).tolist() == pytest.approx([1, 1])
    torch.testing.assert_close(target[0, :4], torch.tensor([0.5703, 0.3459, 0.0772, 0.0063]), rtol=0, atol=5e-5)
    expected = torch.tensor([0.0001, 0.0044, 0.0540, 0.2420, 0.3989, 0.2420, 0.0540, 0.0044, 0.0001, 0.0000])
    torch.testing.assert_close(target[1], expected, rtol=0, atol=5e-5)
    # Tokens of equal value share alike.
    shared = losses.gaussian_target(torch.tensor(5.0), IRREGULAR.token_values, 1.0)
    assert shared[0] == shared[4] > 0.4


def test_gaussian_losses_at_one_position() -> None:
    label = torch.tensor(LABEL)
    for sigma, uniform, peaked in ((0.5, 2.564949, 2.134838), (1.0, 2.564949, 6.011116), (2.0, 2.564949, 7.977058)):
        for logits, expected in ((torch.zeros(13), uniform), (zeros_but({LABEL: 0.0}, fill=-10.0), peaked)):
            loss = losses.gaussian_cross_entropy(logits, label, DIGITS, sigma=sigma)
            assert loss.item() == pytest.approx(expected, abs=1e-5)
    for digit, expected in ((4, 0.7276), (0, 0.5201), (9, 0.5201)):  # not met by the label alone
        logits = zeros_but({3 + digit: 0.0}, fill=-1e4)
        loss = losses.ntl_was_cdf(logits, torch.tensor(3 + digit), DIGITS, sigma=1.0)
        assert loss.item() == pytest.approx(expected, abs=5e-5)


# ---- whole numbers by place value; if all logits are 0, the expected digit is 4.5


def digits(text: str) -> list[int]:
    return [POINT if each == "." else A if each == "a" else -100 if each == "_" else ZERO + int(each) for each in text]


def by_place(text: str, point_id: int | None = POINT) -> list[float]:
    logits = torch.zeros(1, len(text), 13, dtype=torch.float64)
    labels = torch.tensor([digits(text)])
    return ntl_number_level(logits, labels, DIGITS, point_id=point_id, reduction="none")[0].tolist()


NUMBERS = {
    "12": [0, (4.95 - 1.2) / 1.2],
    "0": [4.5],
    "0a7": [4.5, 0, 2.5 / 7],
    "1.5": [0, 0, (4.95 - 1.5) / 1.5],
    "0.05": [0, 0, 0, 4.995 - 0.05],  # divided by one unit of the first digit's place
    "7_7": [2.5 / 7, 0, 2.5 / 7],
    ".5a5.": [0, 0.5 / 5, 0, 0.5 / 5, 0],  # no digit before, none after: not a decimal point
    "1..2": [3.5, 0, 0, 2.5 / 2],
}


def test_numbers_by_place_value() -> None:
    for text, expected in NUMBERS.items():
        assert by_place(text) == pytest.approx(expected), text
    assert by_place("1.5", point_id=None) == pytest.approx([3.5, 0, 0.1])  # two numbers


def test_numbers_end_with_their_sequence() -> None:
    labels = torch.tensor([digits("a1"), digits("2a")])
    each = ntl_number_level(torch.zeros(2, 2, 13), labels, DIGITS, reduction="none")
    torch.testing.assert_close(each, torch.tensor([[0.0, 3.5], [1.25, 0.0]]))
    assert count_numbers(labels, DIGITS).item() == 2
    assert ntl_number_level(torch.zeros(2, 2, 13), labels, DIGITS).item() == pytest.approx(4.75 / 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_label_of_0_and_forty_digits_have_finite_gradients(dtype: torch.dtype) -> None:
    for text in ("0", "9" * 40):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(1, len(text), 13, generator=generator).to(dtype).requires_grad_()
        loss = ntl_number_level(logits, torch.tensor([digits(text)]), DIGITS)
        loss.backward()
        assert loss.item() > 0
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
        assert logits.grad.any()


# ---- a number head


def test_squared_error_by_hand() -> None:
    predictions, targets = torch.tensor([[1.0, -2.0], [0.5, 8.0]]), torch.tensor([[3.0, -2.0], [0.0, 5.0]])
    assert squared_error(predictions, targets, reduction="none").tolist() == [[4, 0], [0.25, 9]]
    assert squared_error(predictions, targets, reduction="sum") == 13.25
    assert squared_error(predictions, targets) == 13.25 / 4
    assert gradcheck(lambda x: squared_error(x, targets.double()), predictions.double().requires_grad_())
    for dtype in (torch.float16, torch.bfloat16):  # beyond float16
        assert squared_error(torch.tensor([300.0], dtype=dtype), torch.tensor([0.0])) == torch.tensor(90_000.0)
    none = torch.zeros(0, requires_grad=True)
    squared_error(none, torch.zeros(0)).backward()
    assert none.grad is not None
    with pytest.raises(ValueError, match=r"predictions \(2, 2\) and targets \(2,\) differ in shape"):
        squared_error(predictions, targets[0])
    with pytest.raises(ValueError, match="reduction must be"):
        squared_error(predictions, targets, reduction="median")  # type: ignore[arg-type]


# ---- the diagnostics of a batch


def test_they_are_the_losses_of_these_names_however_the_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, 7, DIGITS.values.numel(), dtype=torch.float64)
    labels = torch.randint(0, DIGITS.values.numel(), (4, 7))
    labels[1] = -100
    found = number_rows(logits, labels, DIGITS, -100)
    total, each = diagnostic_sums(found), diagnostic_sums(found, per_example=True)
    assert (total.shape, each.shape) == ((4,), (4, 4))
    assert each[1].tolist() == [0, 0, 0, 0]
    torch.testing.assert_close(each.sum(dim=0), total)
    for place, loss in ((0, ntl_was), (2, ntl_mae)):
        torch.testing.assert_close(total[place], loss(logits, labels, DIGITS, reduction="sum"))
    monkeypatch.setattr(rows, "number_index", all_positions)
    masked = number_rows(logits, labels, DIGITS, -100)
    torch.testing.assert_close(diagnostic_sums(masked), total)
    torch.testing.assert_close(diagnostic_sums(masked, per_example=True), each)
