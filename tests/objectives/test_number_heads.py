"""Objectives of number heads, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig

from ntl.config import compose
from ntl.config.loss import RegressionConfig
from ntl.losses import JointLoss
from ntl.objectives.number_heads import MaskedNumber, Regression, scale_targets


class _Model(torch.nn.Module):
    config = SimpleNamespace(name="its own")

    def __init__(self, logits: torch.Tensor, numbers: torch.Tensor) -> None:
        super().__init__()
        self.logits, self.numbers = torch.nn.Parameter(logits), torch.nn.Parameter(numbers)

    def forward(self, input_ids: torch.Tensor, number_values: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.logits, numbers=self.numbers)


INPUTS = {"input_ids": torch.zeros(2, 3).long(), "number_values": torch.ones(2, 3)}


def test_masked_number_by_hand() -> None:
    model = _Model(torch.tensor([[0.0, 0, 0, 0], [0, 0, 100, 0]]), torch.tensor([1.5, -2]))
    config = compose(["model=xval_tiny"])
    assert config.loss.weight == 1.0
    objective: Any = MaskedNumber(config.objective, model=model, weight=config.loss.weight)  # pyright: ignore
    batch = {"labels": torch.tensor([1, 2]), "number_labels": torch.tensor([1.0, 1]), **INPUTS}
    rows = torch.stack(objective.eval()(**batch).flat, dim=1)
    expected = torch.tensor([[torch.tensor(4.0).log(), 1, 0.25, 1, 0], [0, 1, 9, 1, 0]])
    torch.testing.assert_close(rows, expected)
    total = objective.train()(**batch)
    assert isinstance(total, JointLoss)
    torch.testing.assert_close(torch.stack(total.flat), expected.sum(0))
    assert all(part.shape == () for part in total.flat)
    assert objective.count(batch["labels"]).tolist() == [2, 2]
    assert objective.config is model.config
    total.total.backward()
    torch.testing.assert_close(model.numbers.grad, torch.tensor([0.5, -3.0]))  # of the mean of two
    assert model.logits.grad is not None


LABELS = torch.tensor([3.0, 0.0, -1.0])


class Model(nn.Module):
    """One output a sequence: the mean of its ids."""

    config = SimpleNamespace()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        return SimpleNamespace(
            logits=(input_ids * attention_mask).sum(-1, keepdim=True) / attention_mask.sum(-1)[:, None]
        )


BATCH = {
    "input_ids": torch.tensor([[1, 2, 3], [4, 6, 99], [1, 99, 99]]),
    "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]),
    "labels": LABELS,
}


def test_regression_by_hand() -> None:
    """Outputs 2, 5 and 1 against 3, 0 and -1; where the training answers are 1 +- 2, against 1, -0.5 and -1."""
    said: list[str] = []
    config, model = PreTrainedConfig(), Model()
    rows = Regression(RegressionConfig(), model=model, weight=1.0).eval()(**BATCH)  # pyright: ignore
    assert rows.number.sum.tolist() == [1, 25, 4]
    assert rows.number.count.tolist() == [1, 1, 1]
    assert [part.tolist() for part in (*rows.base, rows.aux_sum)] == [[0, 0, 0]] * 3
    scale_targets(config, RegressionConfig(standardize=True), np.array([3.0, -1.0]), said.append)
    model.config = SimpleNamespace(target_mean=config.target_mean, target_sd=config.target_sd)
    heads = Regression(RegressionConfig(), model=model, weight=1.0)  # pyright: ignore[reportArgumentType]
    assert heads.eval()(**BATCH).number.sum.tolist() == [1, 30.25, 4]
    scale_targets(config, RegressionConfig(), np.array([3.0, -1.0]), said.append)
    assert said == []
    scale_targets(config, RegressionConfig(), np.array([800.0, 900.0]), said.append)
    assert "a mean of 850 and a standard deviation of 50" in said[0]
    assert "objective.standardize=true" in said[0]
    scale_targets(config, RegressionConfig(standardize=True), np.array([7.0, 7.0]), said.append)
    assert (config.target_mean, config.target_sd) == (7, 1)  # one answer has no spread
