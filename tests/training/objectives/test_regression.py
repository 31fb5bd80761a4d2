"""The objective of a regression head: sums, counts, and what a batch of a real model gives."""

from types import SimpleNamespace

import torch
from torch import nn

from ntl.config.loss import RegressionConfig
from ntl.losses import cross_entropy, squared_error
from ntl.losses.fused.terms import Loss, Terms
from ntl.training.objectives.number_heads import Regression

TERMS = Terms(Loss(cross_entropy), (Loss(squared_error),), 1.0)
LABELS = torch.tensor([3.0, 0.0, -1.0])


class Model(nn.Module):
    """One output a sequence: the mean of its ids."""

    config = SimpleNamespace()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        return SimpleNamespace(
            logits=(input_ids * attention_mask).sum(-1, keepdim=True) / attention_mask.sum(-1)[:, None]
        )


def objective() -> Regression:
    return Regression(RegressionConfig(), model=Model(), terms=TERMS)  # pyright: ignore[reportArgumentType]


BATCH = {
    "input_ids": torch.tensor([[1, 2, 3], [4, 6, 99], [1, 99, 99]]),
    "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]),
    "labels": LABELS,
}


def test_by_hand() -> None:
    """Outputs 2, 5 and 1 against 3, 0 and -1."""
    rows = objective().eval()(**BATCH)
    assert rows.number.sum.tolist() == [1, 25, 4]
    assert rows.number.count.tolist() == [1, 1, 1]
    assert [part.tolist() for part in (*rows.base, rows.aux_sum)] == [[0, 0, 0]] * 3


def test_training_gives_the_sums_of_evaluation() -> None:
    rows, total = objective().eval()(**BATCH), objective().train()(**BATCH)
    assert [part.sum() for part in rows.flat] == list(total.flat)
    assert objective().count(LABELS).tolist() == [int(total.base.count), int(total.number.count)] == [0, 3]
    assert total.total == 10
    assert objective().train()(**BATCH, counts=torch.tensor([0, 6])).total == 5
