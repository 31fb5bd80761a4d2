import math

import torch
from loss_cases import DIGITS

from ntl.losses import cross_entropy, digit_cross_entropy

FOUR = 7


def test_cross_entropy_is_over_the_whole_vocabulary():
    logits = torch.zeros(1, 13)
    assert math.isclose(cross_entropy(logits, torch.tensor([FOUR])).item(), math.log(13), rel_tol=1e-6)


def test_digit_cross_entropy_is_over_the_digits_alone():
    logits = torch.zeros(1, 13)
    logits[0, 1] = 50.0
    assert math.isclose(digit_cross_entropy(logits, torch.tensor([FOUR]), DIGITS).item(), math.log(10), rel_tol=1e-6)
    logits[0, FOUR] = math.log(9)
    assert math.isclose(digit_cross_entropy(logits, torch.tensor([FOUR]), DIGITS).item(), math.log(2), rel_tol=1e-6)


def test_digit_cross_entropy_knows_no_distance():
    logits = torch.zeros(2, 13)
    logits[0, 8] = logits[1, 12] = 3.0  # 5 and 9 instead of 4
    near, far = digit_cross_entropy(logits, torch.tensor([FOUR, FOUR]), DIGITS, reduction="none")
    torch.testing.assert_close(near, far)
