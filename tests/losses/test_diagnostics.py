"""The diagnostics of a batch, by hand and against the losses of the same names."""

import math

import pytest
import torch
from loss_cases import DIGITS, all_positions

from ntl.losses import ntl_mae, ntl_was, rows
from ntl.losses.rows import number_rows
from ntl.losses.sums import diagnostic_sums
from ntl.numbers import NumberVocabulary


def test_two_digits_by_hand() -> None:
    """The mass is half on 1 and half on 3 where the label is 2, then 3/4 on 5 and 1/4 on 9 where it is 5."""
    vocab = NumberVocabulary.from_values([math.nan, 1.0, 3.0, 2.0, 5.0, 9.0])
    logits = torch.full((1, 3, 6), -math.inf)
    logits[0, 0, [1, 2]] = 0.0
    logits[0, 1, [4, 5]] = torch.tensor([math.log(3), 0.0])
    logits[0, 2, 0] = 0.0
    labels = torch.tensor([[3, 4, 0]])
    logits[0, :, 0] = 50.0  # the text token, which is likeliest everywhere, is left out
    found = diagnostic_sums(number_rows(logits, labels, vocab, -100))
    # NTL-WAS 1 and 1/4 * 4; one of two is right; the expectations are 2 and 6; two number labels.
    torch.testing.assert_close(found, torch.tensor([1 + 1.0, 1.0, 0 + 1.0, 2.0]))


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
