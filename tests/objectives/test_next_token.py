"""The next-token objective: recomputed from the logits one example at a time, and its implementations."""

from typing import Any

import pytest
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, T5ForConditionalGeneration

from ntl.config import UserError, compose
from ntl.config.folders import choices
from ntl.config.loss import LossConfig, ObjectiveConfig
from ntl.losses import kinds
from ntl.losses.joint import FASTER_FROM
from ntl.numbers import NumberVocabulary
from ntl.objectives.next_token import NextToken, loss_of

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
@pytest.mark.parametrize("loss", ["ce", "mse", "gce+was_cdf"])
@pytest.mark.parametrize("family", ["gpt2", "t5"])
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


@pytest.mark.parametrize("name", sorted({*choices("loss")} - {"squared_error", "expected_error", "emo"}))
def test_the_constants_of_a_loss_move_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the device of the labels: on another one, a cost matrix that stayed behind is an error."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # masks in place of indices, as on a GPU
    network, ids = model("gpt2").to("meta"), torch.ones(2, 4, dtype=int, device="meta")
    objective = next_token(network, compose([f"loss={name}"]).loss, point_id=2)

    def constants() -> list[torch.Tensor]:
        objective(ids, counts=objective.count(ids), input_ids=ids, attention_mask=ids).total.backward()
        options: Any = objective.loss.terms.options.values()
        return [objective.loss.values, *(each for each in options if isinstance(each, torch.Tensor))]

    first = constants()
    assert len(first) == 1 + (name == "ntl_was_squashed")
    assert all(each.is_meta for each in first)
    assert all(one is other for one, other in zip(first, constants(), strict=True))


def test_an_option_that_only_a_run_knows() -> None:
    with pytest.raises(UserError, match=r"^loss=own: kind 'emo' needs the option 'embedding'\.$"):
        loss_of(config("auto", "emo"), VOCAB, {})
    named = LossConfig("own", "digit_entropy", options={"point_id": 9})
    assert loss_of(named, VOCAB, {"point_id": 7}).options["point_id"] == 9


@pytest.mark.parametrize("implementation", ["fused", "linear"])
def test_emo_or_a_loss_of_other_logits_is_not_fused(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_KINDS", kinds.kinds())

    def others(
        logits: torch.Tensor, labels: torch.Tensor, number_vocab: Any, *, ignore_index: int, reduction: str
    ) -> Any:
        return logits[..., 0].sum()

    kinds.register("others", others, fused=False)
    line = r"^loss=own: .* are for the kinds ce, gce, .*, was_vocab; take "
    for kind in ("emo", "others"):
        with pytest.raises(UserError, match=line):
            loss_of(config(implementation, kind), VOCAB, {"embedding": torch.ones(WIDTH, 2)})
    assert float(loss_of(config("auto", "others"), VOCAB, {})(torch.ones(1, WIDTH), torch.tensor([3]))) > 0


@pytest.mark.parametrize("implementation", ["reference", "fused", "linear"])
@pytest.mark.parametrize("family", ["gpt2", "t5"])
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
