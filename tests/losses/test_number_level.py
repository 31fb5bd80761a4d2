"""Whole numbers by place value, with values computed by hand. If all logits are 0, the expected digit is 4.5."""

import pytest
import torch
from loss_cases import DIGITS

from ntl.losses import count_numbers, ntl_number_level

A, POINT, ZERO = 1, 2, 3


def digits(text: str) -> list[int]:
    return [POINT if each == "." else A if each == "a" else -100 if each == "_" else ZERO + int(each) for each in text]


def losses(text: str, point_id: int | None = POINT) -> list[float]:
    labels = torch.tensor([digits(text)])
    logits = torch.zeros(1, len(text), 13, dtype=torch.float64)
    return ntl_number_level(logits, labels, DIGITS, point_id=point_id, reduction="none")[0].tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", [0, (4.95 - 1.2) / 1.2]),
        ("0", [4.5]),
        ("0a7", [4.5, 0, 2.5 / 7]),
        ("1.5", [0, 0, (4.95 - 1.5) / 1.5]),
        ("0.05", [0, 0, 0, 4.995 - 0.05]),  # divided by one unit of the first digit's place
        ("7_7", [2.5 / 7, 0, 2.5 / 7]),
        (".5a5.", [0, 0.5 / 5, 0, 0.5 / 5, 0]),  # no digit before, none after: not a decimal point
        ("1..2", [3.5, 0, 0, 2.5 / 2]),
    ],
)
def test_by_hand(text: str, expected: list[float]) -> None:
    assert losses(text) == pytest.approx(expected)


def test_without_a_point_there_are_two_numbers() -> None:
    assert losses("1.5", point_id=None) == pytest.approx([3.5, 0, 0.1])


def test_numbers_end_with_their_sequence() -> None:
    labels = torch.tensor([digits("a1"), digits("2a")])
    each = ntl_number_level(torch.zeros(2, 2, 13), labels, DIGITS, reduction="none")
    torch.testing.assert_close(each, torch.tensor([[0.0, 3.5], [1.25, 0.0]]))
    assert count_numbers(labels, DIGITS).item() == 2
    assert ntl_number_level(torch.zeros(2, 2, 13), labels, DIGITS).item() == pytest.approx(4.75 / 2)


def test_the_gradient_lives_at_a_label_of_0() -> None:
    logits = torch.zeros(1, 1, 13, requires_grad=True)
    ntl_number_level(logits, torch.tensor([digits("0")]), DIGITS).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0, ZERO] < -0.1


def test_forty_digits_are_finite() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        logits = torch.randn(1, 40, 13, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
        loss = ntl_number_level(logits, torch.tensor([digits("9" * 40)]), DIGITS)
        loss.backward()
        assert 0 < loss.item() < 1
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
