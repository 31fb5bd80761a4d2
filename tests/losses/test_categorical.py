import math

import pytest
import torch
from loss_cases import DIGITS, IRREGULAR

from ntl.losses import cross_entropy, digit_cross_entropy, gaussian_cross_entropy, gaussian_target

FOUR = 7


def test_cross_entropy_is_over_the_whole_vocabulary():
    logits = torch.zeros(1, 13)
    assert math.isclose(cross_entropy(logits, torch.tensor([FOUR])).item(), math.log(13), rel_tol=1e-6)


def test_digit_cross_entropy_is_over_the_digits_alone_and_knows_no_distance():
    logits = torch.zeros(1, 13)
    logits[0, 1] = 50.0
    assert digit_cross_entropy(logits, torch.tensor([FOUR]), DIGITS).item() == pytest.approx(math.log(10))
    for other in (8, 12):  # 5 and 9 instead of 4
        logits[0, other] = math.log(9)
        assert digit_cross_entropy(logits, torch.tensor([FOUR]), DIGITS).item() == pytest.approx(math.log(18))
        logits[0, other] = 0.0


# ---- Gaussian


@pytest.mark.parametrize(
    ("digit", "expected"),
    [
        (0, [0.5703, 0.3459, 0.0772, 0.0063, 0.0002]),
        (4, [0.0001, 0.0044, 0.0540, 0.2420, 0.3989, 0.2420, 0.0540, 0.0044, 0.0001, 0.0000]),
    ],
)
def test_the_gaussian_target_on_digits(digit: int, expected: list[float]):
    target = gaussian_target(torch.tensor([float(digit)]), torch.arange(10.0), 1.0)
    assert target.shape == (1, 10)
    assert target.sum().item() == pytest.approx(1)
    torch.testing.assert_close(target[0, : len(expected)], torch.tensor(expected), rtol=0, atol=5e-5)


def test_tokens_of_equal_value_share_alike():
    target = gaussian_target(torch.tensor(5.0), IRREGULAR.token_values, 1.0)
    assert target[0] == target[4] > 0.4


def test_a_narrow_gaussian_is_cross_entropy():
    logits = torch.randn(3, 13, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([1, 5, 12])
    narrow = gaussian_cross_entropy(logits, labels, DIGITS, sigma=1e-3)
    torch.testing.assert_close(narrow, cross_entropy(logits, labels))


def test_text_and_numbers_share_one_mean():
    logits = torch.randn(3, 13, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([1, 5, -100])
    text = cross_entropy(logits[0], labels[0])
    number = gaussian_cross_entropy(logits[1], labels[1], DIGITS)
    torch.testing.assert_close(gaussian_cross_entropy(logits, labels, DIGITS), (text + number) / 2)
