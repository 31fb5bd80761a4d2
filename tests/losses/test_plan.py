"""The contribution of the number rows to a pass: its patch equals autograd's gradient of the same sum."""

import pytest
import torch
from loss_cases import DIGITS

from ntl import losses
from ntl.losses.fused.plan import Scales, check_labels, inputs_from_logits
from ntl.losses.fused.terms import Terms

LABELS = torch.tensor([[3, 1, 7], [-100, 12, 0]])


@pytest.mark.parametrize("kind", ["was", "mse", "crps", "digit_ce"])
def test_the_patch_is_the_gradient_at_the_number_tokens(kind: str) -> None:
    terms = Terms.of(kind, 1.0, {})
    logits = torch.randn(2, 3, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    inputs = inputs_from_logits(terms, logits.detach().flatten(0, 1), LABELS, DIGITS, -100)
    one = torch.ones((), dtype=torch.float64)
    part = inputs.part(Scales(one, 2 * one), gradient=True)
    (expected,) = torch.autograd.grad(2 * terms.numbers[0](logits, LABELS, DIGITS, reduction="sum"), logits)
    assert inputs.positions.flat.tolist() == [0, 2, 4]
    assert part.patch_MK is not None
    torch.testing.assert_close(part.patch_MK, expected.flatten(0, 1)[[0, 2, 4], 3:13])
    torch.testing.assert_close(part.losses_M.sum(), terms.numbers[0](logits, LABELS, DIGITS, reduction="sum").detach())


def test_nothing_to_patch() -> None:
    inputs = inputs_from_logits(Terms.of("ce", 1.0, {}), torch.zeros(6, 13), LABELS, DIGITS, -100)
    part = inputs.part(Scales(torch.ones(()), torch.ones(())), gradient=True)
    assert part.patch_MK is None
    assert not part.losses_M.any()


def test_ignored_rows_have_a_label_that_is_a_token() -> None:
    inputs = inputs_from_logits(Terms.of("was", 1.0, {}), torch.zeros(6, 13), LABELS, DIGITS, -100)
    assert inputs.labels_N.tolist() == [3, 1, 7, 0, 12, 0]
    assert inputs.counted_N is not None
    assert inputs.counted_N.sum() == losses.count_labels(LABELS)


def test_labels_are_checked() -> None:
    check_labels(torch.tensor([], dtype=torch.long), 0)
    check_labels(torch.tensor([0, 12]), 13)
    with pytest.raises(IndexError, match=r"label 13 is not a token id in \[0, 13\)"):
        check_labels(torch.tensor([0, 13]), 13)
