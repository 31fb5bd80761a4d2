"""The loss called by a transformers trainer, and the trainer's label smoothing, which transformers ignores."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loss_cases import DIGITS
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator
from transformers.modeling_outputs import CausalLMOutput

from ntl import NumberTokenLoss
from ntl.data.weights import WeightedCollator
from ntl.losses import NumberTokenLossMixin

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
        with pytest.raises(TypeError, match=f"a {type(outputs).__name__} without logits.* take TRL's loss_type='nll'"):
            loss(outputs, LABELS)
    nothing: Any = None
    with pytest.raises(TypeError, match="there are no labels: the batches of the trainer need the key 'labels'"):
        loss.compute_loss_func({"logits": LOGITS}, nothing)


@pytest.mark.parametrize("average", [False, True])
def test_several_devices_in_one_process(average: bool, tmp_path: Path) -> None:
    """DataParallel gives the loss of the whole batch; without a GPU it passes it to the model as it is."""
    loss = NumberTokenLoss(DIGITS, shift=True)
    found = []
    for devices in (1, 2):
        trainer = trainer_of(tmp_path, loss)
        trainer.args._n_gpu, trainer.args.average_tokens_across_devices = devices, average
        trainer.args.per_device_train_batch_size = 2 // devices
        trainer._train_batch_size = 2
        found.append(losses_of(trainer))
    assert found[1] == pytest.approx(found[0], rel=0.1 if not average else 1e-6)  # 11 labels // 2 are 5


class Weighted(NumberTokenLossMixin, Trainer):
    pass


ROWS = [{"input_ids": LABELS[i].clamp(min=0), "labels": LABELS[i]} for i in (0, 1, 0)]


def weighted_losses(folder: Path, weights: list[float], size: int) -> list[float]:
    made = trainer_of(folder, None)
    how = {"report_to": "none", "save_strategy": "no", "use_cpu": True, "logging_steps": 1, "max_steps": 2}
    how |= {"gradient_accumulation_steps": len(weights) // size, "remove_unused_columns": False}
    arguments = TrainingArguments(str(folder), per_device_train_batch_size=size, **how)
    data = [{**row, "w": weight} for row, weight in zip(ROWS, weights, strict=False)]
    loss, collate = NumberTokenLoss(DIGITS, shift=True), WeightedCollator(default_data_collator, "w")
    trainer = Weighted(made.model, arguments, collate, train_dataset=data, eval_dataset=data, number_token_loss=loss)
    before = trainer.evaluate()["eval_loss"]
    return [before, *losses_of(trainer)]


def test_a_row_of_weight_2_is_the_row_twice(tmp_path: Path) -> None:
    """In training and evaluation, and over accumulated batches."""
    twice = weighted_losses(tmp_path, [1.0, 1.0, 1.0], 3)
    assert weighted_losses(tmp_path, [6.0, 3.0], 2) == pytest.approx(twice, rel=1e-5)
    assert weighted_losses(tmp_path, [2.0, 1.0], 1)[1:] == pytest.approx(twice[1:], rel=1e-5)
    assert weighted_losses(tmp_path, [1.0, 1.0], 2)[1:] != pytest.approx(twice[1:], rel=1e-3)


@pytest.mark.parametrize("kind", ["was", "number_level", "ntil"])
def test_a_batch_of_eight_is_eight_batches_of_one(kind: str, tmp_path: Path) -> None:
    """The loss and the weights behind a step, in float64, of rows of which each has another share of numbers."""
    ids = torch.randint(3, 13, (8, 8), generator=torch.Generator().manual_seed(1))
    ids = ids.where(torch.arange(8) <= torch.arange(8).unsqueeze(1), 1)
    labels = ids.masked_fill(torch.arange(8) > torch.arange(15, 7, -1).unsqueeze(1) // 2, -100)
    rows = [{"input_ids": ids[i], "labels": labels[i]} for i in range(8)]
    loss, found = NumberTokenLoss(DIGITS, shift=True, kind=kind), []
    counts = [loss.counts({"labels": labels[i : i + 1]}) for i in range(8)]
    assert len({float(numbers / labelled) for labelled, numbers in counts}) > 2
    for size in (8, 1):
        model: Any = trainer_of(tmp_path, None).model.double()
        how = {"report_to": "none", "save_strategy": "no", "use_cpu": True, "optim": "sgd", "max_grad_norm": 0.0}
        how |= {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size, "max_steps": 1}
        arguments = TrainingArguments(str(tmp_path), learning_rate=1.0, logging_steps=1, **how)
        expected = loss(model(ids).logits, labels).item()
        trainer = Weighted(model, arguments, train_dataset=rows, number_token_loss=loss)
        assert losses_of(trainer) == [pytest.approx(expected, rel=1e-6)]
        found.append(model.state_dict())
    for name, each in found[0].items():
        torch.testing.assert_close(found[1][name], each, rtol=0, atol=1e-12)


@pytest.mark.parametrize("other", ["loss_type='dft'", "compute_loss_func", "sequence parallelism"])
def test_a_trainer_with_another_loss_is_refused(other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As TRL refuses a loss function with loss_type="dft"; with that parallelism transformers ignores one."""

    class Sharded(Trainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            sharding = SimpleNamespace(sp_enabled=other == "sequence parallelism")
            monkeypatch.setattr(self.accelerator.state, "parallelism_config", sharding)

    class Mixed(NumberTokenLossMixin, Sharded):
        pass

    loss, made = NumberTokenLoss(DIGITS, shift=True), trainer_of(tmp_path, None)
    made.args.loss_type = other[11:-1] if "=" in other else "nll"  # pyright: ignore[reportAttributeAccessIssue]
    given = {"compute_loss_func": loss} if other == "compute_loss_func" else {}
    with pytest.raises(ValueError, match=f"^there is a number_token_loss, and {other}.*: leave out one"):
        Mixed(made.model, made.args, **given, number_token_loss=loss)


def test_a_trainers_label_smoothing_is_dropped_and_told(tmp_path: Path) -> None:
    """Unless both smooth alike."""
    loss = NumberTokenLoss(DIGITS, shift=True, label_smoothing=0.2)
    made = [trainer_of(tmp_path, None, smoothing=factor) for factor in (0.1, 0.2)]
    with pytest.warns(UserWarning, match=r"ignores label_smoothing_factor=0\.1 .*label_smoothing=0\.2: create"):
        Weighted(made[0].model, made[0].args, number_token_loss=loss)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*label_smoothing")
        Weighted(made[1].model, made[1].args, number_token_loss=loss)


@pytest.mark.parametrize("kind", ["was", "ce"])
def test_both_terms_are_logged(kind: str, tmp_path: Path) -> None:
    """They add up to the loss, in training over two accumulated batches; without a number loss there is none."""
    made = trainer_of(tmp_path, None)
    how = {"report_to": "none", "save_strategy": "no", "use_cpu": True, "logging_steps": 1, "max_steps": 1}
    arguments = TrainingArguments(str(tmp_path), per_device_train_batch_size=1, gradient_accumulation_steps=2, **how)
    loss = NumberTokenLoss(DIGITS, shift=True, kind=kind)
    trainer = Weighted(made.model, arguments, train_dataset=ROWS[:2], eval_dataset=ROWS[:2], number_token_loss=loss)
    before = trainer.evaluate()
    trainer.train()
    line = next(line for line in trainer.state.log_history if "loss" in line)
    assert {"ce", "ntl"} & line.keys() == ({"ce", "ntl"} if kind == "was" else {"ce"})
    for name in {"ce", "ntl"} & line.keys():
        assert line[name] == pytest.approx(before[f"eval_{name}"], rel=1e-6)
    assert line["loss"] == pytest.approx(line["ce"] + 0.3 * line.get("ntl", 0.0), rel=1e-4)
