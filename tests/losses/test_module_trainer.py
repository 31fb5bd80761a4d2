"""The loss called by a transformers trainer, and the trainer's label smoothing, which transformers ignores."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loss_cases import DIGITS
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.modeling_outputs import CausalLMOutput
from transformers.trainer_pt_utils import LabelSmoother

from ntl import NumberTokenLoss

LABELS = torch.tensor([[3, 1, 4, 12, 2, 7, 7], [1, -100, -100, 9, 5, 2, -100]])
LOGITS = torch.randn(2, 7, 13, generator=torch.Generator().manual_seed(0))


def trainer_of(folder: Path, function: Any, smoothing: float = 0.0) -> Trainer:
    torch.manual_seed(0)
    sizes = {"vocab_size": 13, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 8}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    ids = LABELS.clamp(min=0)
    rows = [{"input_ids": ids[i], "labels": ids[i]} for i in range(2)]
    how = {"label_smoothing_factor": smoothing, "report_to": "none", "save_strategy": "no", "use_cpu": True}
    arguments = TrainingArguments(str(folder), max_steps=2, per_device_train_batch_size=2, logging_steps=1, **how)
    return Trainer(model, arguments, train_dataset=rows, compute_loss_func=function)


def losses_of(trainer: Trainer) -> list[float]:
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def test_whatever_holds_logits() -> None:
    loss = NumberTokenLoss(DIGITS, shift=True)
    expected = loss(LOGITS, LABELS, num_items_in_batch=10)
    held: list[Any] = [
        CausalLMOutput(logits=LOGITS),
        {"logits": LOGITS},
        (LOGITS, None),
        SimpleNamespace(logits=LOGITS),
    ]
    for outputs in held:
        assert torch.equal(loss(outputs, LABELS, num_items_in_batch=10), expected)
        assert torch.equal(loss.compute_loss_func(outputs, LABELS, num_items_in_batch=10), expected)
    without: list[Any] = [CausalLMOutput(), {"loss": LOGITS}, (), "logits", None]
    for outputs in without:
        with pytest.raises(TypeError, match=f"a {type(outputs).__name__} without logits"):
            loss(outputs, LABELS)
    nothing: Any = None
    with pytest.raises(TypeError, match="there are no labels: the batches of the trainer need the key 'labels'"):
        loss.compute_loss_func({"logits": LOGITS}, nothing)


def test_a_trainers_label_smoothing_is_dropped_and_told_once(tmp_path: Path) -> None:
    """Unless both smooth alike."""
    loss = NumberTokenLoss(DIGITS, shift=True, label_smoothing=0.2)
    with pytest.warns(UserWarning, match=r"ignores label_smoothing_factor=0\.1 .*label_smoothing=0\.2: create") as told:
        found = losses_of(trainer_of(tmp_path, loss, smoothing=0.1))
    assert len([line for line in told if "label_smoothing" in str(line.message)]) == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*label_smoothing")
        assert found == losses_of(trainer_of(tmp_path, loss, smoothing=0.2))


def test_smoothing_is_that_of_transformers_label_smoother() -> None:
    loss = NumberTokenLoss(DIGITS, shift=True, kind="ce", label_smoothing=0.1)
    smoother = LabelSmoother(epsilon=0.1)
    for items in (None, 20, torch.tensor(20)):
        expected: Tensor = smoother({"logits": LOGITS}, LABELS, shift_labels=True, num_items_in_batch=items)
        torch.testing.assert_close(loss(LOGITS, LABELS, num_items_in_batch=items), expected)
    by_torch = F.cross_entropy(LOGITS[:, :-1].flatten(0, 1), LABELS[:, 1:].flatten(), label_smoothing=0.1)
    torch.testing.assert_close(loss(LOGITS, LABELS), by_torch)
