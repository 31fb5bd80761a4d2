"""The next-token objective: recomputed from the logits one example at a time, and its implementations."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedConfig, T5ForConditionalGeneration

from ntl.config import UserError, compose
from ntl.config.loss import LossConfig, ObjectiveConfig, RegressionConfig
from ntl.losses import JointLoss, registry
from ntl.losses.joint import FASTER_FROM
from ntl.numbers import NumberVocabulary
from ntl.objectives.next_token import NextToken, loss_of
from ntl.objectives.number_heads import MaskedNumber, Regression, scale_targets

WIDTH = FASTER_FROM
VOCAB = NumberVocabulary.from_values([float("nan")] * 3 + list(range(10)) + [float("nan")] * (WIDTH - 13))


def model(family: str) -> Any:
    torch.manual_seed(0)
    if family == "gpt2":
        drop = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        return GPT2LMHeadModel(GPT2Config(vocab_size=WIDTH, n_embd=16, n_layer=1, n_head=2, n_positions=16, **drop))
    sizes = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(transformers.T5Config(vocab_size=WIDTH, dropout_rate=0.0, **sizes))


def next_token(network: Any, config: LossConfig, **known: Any) -> NextToken:
    given = {"loss": loss_of(config, VOCAB, known), "implementation": config.implementation}
    return NextToken(ObjectiveConfig(name="next_token"), model=network, **given)


def config(implementation: str, kind: str = "ce") -> LossConfig:
    return LossConfig("own", kind, implementation=implementation)


@pytest.mark.parametrize("implementation", ["fused", "linear"])
@pytest.mark.parametrize(("family", "loss"), [("gpt2", "ce"), ("t5", "ce"), ("t5", "gce+was_cdf")])
def test_every_implementation_gives_what_the_reference_gives(family: str, loss: str, implementation: str) -> None:
    """The loss, its terms, its gradients and the diagnostics."""
    ids = torch.arange(32).view(4, 8) % 13 + 1
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    batch |= {"decoder_input_ids": ids} if family == "t5" else {}
    found = []
    for each in ("reference", implementation):
        objective = next_token(model(family), config(each, loss)).train()
        objective.diagnosing = True
        result = objective(**batch, counts=objective.count(ids))
        result.total.backward()
        gradients = torch.cat([weight.grad.flatten() for weight in objective.parameters() if weight.grad is not None])
        found.append((result.total, torch.stack(result.flat), objective.diagnosed, gradients))
    assert found[0][2][3] == int(((ids >= 3) & (ids < 13)).sum())
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


# Without a constant of its own, and with one.
@pytest.mark.parametrize(("name", "constants"), [("ntl_was", 0), ("ntl_was_squashed", 1)])
def test_the_constants_of_a_loss_move_once(name: str, constants: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the device of the labels: on another one, a cost matrix that stayed behind is an error."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # masks in place of indices, as on a GPU
    network, ids = model("gpt2").to("meta"), torch.ones(2, 4, dtype=int, device="meta")
    objective = next_token(network, compose([f"loss={name}"]).loss, point_id=2)

    def moved() -> list[torch.Tensor]:
        objective(ids, counts=objective.count(ids), input_ids=ids, attention_mask=ids).total.backward()
        options: Any = objective.loss.terms.options.values()
        return [objective.loss.values, *(each for each in options if isinstance(each, torch.Tensor))]

    first = moved()
    assert len(first) == 1 + constants
    assert all(each.is_meta for each in first)
    assert all(one is other for one, other in zip(first, moved(), strict=True))


def test_an_option_that_only_a_run_knows_and_losses_that_are_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    named = LossConfig("own", "digit_entropy", options={"point_id": 9})
    assert loss_of(named, VOCAB, {"point_id": 7}).options["point_id"] == 9
    monkeypatch.setattr(registry, "_KINDS", registry.kinds())

    def others(
        logits: torch.Tensor, labels: torch.Tensor, number_vocab: Any, *, ignore_index: int, reduction: str
    ) -> Any:
        return logits[..., 0].sum()

    registry.register("others", others, fused=False)
    assert float(loss_of(config("auto", "others"), VOCAB, {})(torch.ones(1, WIDTH), torch.tensor([3]))) > 0
    embedding = {"embedding": torch.ones(WIDTH, 2)}
    for kind, implementation, known, named in (
        ("emo", "auto", {}, "'embedding'"),
        *((kind, how, embedding, "kinds") for kind in ("emo", "others") for how in ("fused", "linear")),
    ):
        with pytest.raises(UserError, match=f"^loss=own: .*{named}"):
            loss_of(config(implementation, kind), VOCAB, known)


@pytest.mark.parametrize(
    ("family", "implementation"), [("gpt2", "fused"), ("gpt2", "linear"), ("t5", "linear"), ("t5", "reference")]
)
def test_weights_of_1_change_no_bit_and_a_row_of_weight_2_is_the_row_twice(family: str, implementation: str) -> None:
    ids = torch.arange(32).view(4, 8) % 13 + 1
    labels = ids.masked_fill(torch.arange(32).view(4, 8) % 5 == 0, -100)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    batch |= {"decoder_input_ids": ids} if family == "t5" else {}
    for loss in ("ce", "was"):
        objective = next_token(model(family), config(implementation, loss))

        def of(objective: Any, batch: dict[str, torch.Tensor], **weights: torch.Tensor) -> list[torch.Tensor]:
            counts = objective.count(batch["labels"], **weights) if objective.training else None
            joint = objective(**batch, counts=counts, **weights)
            return [joint.total, *(value.to(joint.total.dtype) for value in joint.flat)]

        ones, twos = torch.ones(4, 8), torch.tensor([2.0, 1.0, 1.0, 0.0]).unsqueeze(1).expand(4, 8)
        rows = [0, 0, 1, 2]
        for mode in (True, False):
            objective.train(mode)
            expected = of(objective, batch)
            for weights in (ones, torch.stack([ones, ones], dim=-1)):
                assert all(map(torch.equal, of(objective, batch, loss_weights=weights), expected))
        objective.train()
        repeated = of(objective, {name: values[rows] for name, values in batch.items()})
        torch.testing.assert_close(of(objective, batch, loss_weights=twos), repeated, rtol=1e-5, atol=1e-6)
        without = of(objective, batch, loss_weights=torch.stack([ones, 0 * ones], dim=-1))
        assert [value.item() for value in without[3:5]] == [0, 0]
        torch.testing.assert_close(without[1:3], of(objective, batch)[1:3])


# Objectives of number heads, by hand.


class MaskedModel(torch.nn.Module):
    config = SimpleNamespace(name="its own")

    def __init__(self, logits: torch.Tensor, numbers: torch.Tensor) -> None:
        super().__init__()
        self.logits, self.numbers = torch.nn.Parameter(logits), torch.nn.Parameter(numbers)

    def forward(self, input_ids: torch.Tensor, number_values: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.logits, numbers=self.numbers)


INPUTS = {"input_ids": torch.zeros(2, 3).long(), "number_values": torch.ones(2, 3)}


def test_masked_number_by_hand() -> None:
    model = MaskedModel(torch.tensor([[0.0, 0, 0, 0], [0, 0, 100, 0]]), torch.tensor([1.5, -2]))
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


class RegressionModel(nn.Module):
    """One output a sequence: the mean of its ids."""

    config = SimpleNamespace()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        return SimpleNamespace(
            logits=(input_ids * attention_mask).sum(-1, keepdim=True) / attention_mask.sum(-1)[:, None]
        )


SEQUENCES = {
    "input_ids": torch.tensor([[1, 2, 3], [4, 6, 99], [1, 99, 99]]),
    "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]),
    "labels": LABELS,
}


def test_regression_by_hand(caplog) -> None:
    """Outputs 2, 5 and 1 against 3, 0 and -1; where the training answers are 1 +- 2, against 1, -0.5 and -1."""
    config, model = PreTrainedConfig(), RegressionModel()
    rows = Regression(RegressionConfig(), model=model, weight=1.0).eval()(**SEQUENCES)  # pyright: ignore
    assert rows.number.sum.tolist() == [1, 25, 4]
    assert rows.number.count.tolist() == [1, 1, 1]
    assert [part.tolist() for part in (*rows.base, rows.aux_sum)] == [[0, 0, 0]] * 3
    scale_targets(config, RegressionConfig(standardize=True), np.array([3.0, -1.0]))
    model.config = SimpleNamespace(target_mean=config.target_mean, target_sd=config.target_sd)
    heads = Regression(RegressionConfig(), model=model, weight=1.0)  # pyright: ignore[reportArgumentType]
    assert heads.eval()(**SEQUENCES).number.sum.tolist() == [1, 30.25, 4]
    scale_targets(config, RegressionConfig(), np.array([3.0, -1.0]))
    assert caplog.messages == []
    scale_targets(config, RegressionConfig(), np.array([800.0, 900.0]))
    assert "a mean of 850 and a standard deviation of 50" in caplog.messages[0]
    assert "objective.standardize=true" in caplog.messages[0]
    scale_targets(config, RegressionConfig(standardize=True), np.array([7.0, 7.0]))
    assert (config.target_mean, config.target_sd) == (7, 1)  # one answer has no spread
