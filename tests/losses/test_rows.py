import pytest
import torch
from loss_cases import IRREGULAR

from ntl.losses import count_labels, count_number_labels
from ntl.losses.rows import label_rows

LABELS = torch.tensor([[0, 1, 2, -100], [8, 7, -100, -100], [500, -7, 5, 3]])


def test_counts():
    assert count_labels(LABELS).item() == count_labels(LABELS, IRREGULAR).item() == 9
    assert count_number_labels(LABELS, IRREGULAR).item() == 5


def test_an_ignored_number_does_not_count():
    assert count_number_labels(LABELS, IRREGULAR, ignore_index=0).item() == 4
    assert count_labels(LABELS, ignore_index=0).item() == 11


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_no_labels(shape: tuple[int, ...]):
    labels = torch.zeros(shape, dtype=torch.long)
    assert count_labels(labels).item() == count_number_labels(labels, IRREGULAR).item() == 0


def test_fully_labelled_logits_are_not_copied():
    logits = torch.zeros(2, 3, 9)
    labels = torch.ones(2, 3, dtype=torch.long)
    assert label_rows(logits, labels, -100).logits_NV.data_ptr() == logits.data_ptr()
    labels[0, 0] = -100
    assert label_rows(logits, labels, -100).logits_NV.shape == (5, 9)
