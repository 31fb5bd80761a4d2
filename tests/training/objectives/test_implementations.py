"""Losses that compute both terms at once train as those that compute one after the other do."""

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from ntl.config import UserError, compose
from ntl.losses import JointLoss
from ntl.losses.fused.joint import FASTER_FROM
from ntl.losses.fused.terms import Loss, Terms
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.next_token import NextToken
from ntl.training.objectives.terms import terms_of

WIDTH = FASTER_FROM
VOCAB = NumberVocabulary.from_values([float("nan")] * 3 + list(range(10)) + [float("nan")] * (WIDTH - 13))


def model(family: str, dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    if family == "gpt2":
        drop = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
        return GPT2LMHeadModel(GPT2Config(vocab_size=WIDTH, n_embd=16, n_layer=1, n_head=2, n_positions=16, **drop))
    sizes = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=WIDTH, dropout_rate=dropout, **sizes))


def trained(
    monkeypatch: pytest.MonkeyPatch, family: str, implementation: str, loss: str, dropout: float, steps: int = 20
) -> tuple[list[float], Any, int]:
    config = compose([f"loss={loss}", f"loss.implementation={implementation}"])
    network = model(family, dropout)
    objective = NextToken(config.objective, model=network, terms=terms_of(config.loss, VOCAB), number_vocab=VOCAB)
    objective.train()
    at_once, calls = objective._at_once, []
    monkeypatch.setattr(objective, "_at_once", lambda *given: (calls.append(1), at_once(*given))[1])
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(steps):
        ids = torch.randint(1, WIDTH, (4, 8), generator=generator)
        digits = torch.randint(3, 13, (4, 8), generator=generator)
        labels = torch.where(torch.rand(4, 8, generator=generator) < 0.5, ids, digits)
        labels[:, :2] = -100
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
        if family == "t5":
            batch["decoder_input_ids"] = ids
        counts = objective.count(labels)
        result = objective(**batch, counts=counts)
        assert isinstance(result, JointLoss)
        optimizer.zero_grad()
        result.total.backward()
        optimizer.step()
        found += [result.total.item(), result.base.sum.item(), result.number.sum.item()]
        ce, ntl = result.base.sum / counts[0], result.number.sum / counts[1]
        torch.testing.assert_close(result.total.detach(), ce + objective.terms.weight * ntl)
    return found, network, len(calls)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    "loss", ["ntl_was", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ce", "gce_ntl_was"))]
)
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_twenty_steps_are_those_of_the_reference(
    family: str, loss: str, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, reference, at_once = trained(monkeypatch, family, "reference", loss, dropout)
    assert at_once == 0
    for implementation in ("auto", "fused", "linear"):
        losses, network, at_once = trained(monkeypatch, family, implementation, loss, dropout)
        assert at_once == 20
        assert losses == pytest.approx(expected, rel=1e-5)
        for name, parameter in network.named_parameters():
            wanted = reference.get_parameter(name)
            assert (parameter - wanted).norm() <= 1e-5 * wanted.norm(), name


def test_evaluation_is_one_value_an_example() -> None:
    config = compose(["loss=ntl_was", "loss.implementation=linear"])
    terms = terms_of(config.loss, VOCAB)
    objective = NextToken(config.objective, model=model("gpt2"), terms=terms, number_vocab=VOCAB).eval()
    ids = torch.randint(3, 13, (4, 8))
    parts = objective(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
    assert isinstance(parts, JointLoss)
    assert parts.base.sum.shape == parts.number.count.shape == parts.total.shape == (4,)
    ce, ntl = parts.base.sum / parts.base.count, parts.number.sum / parts.number.count
    torch.testing.assert_close(parts.total, ce + 0.3 * ntl)


def test_a_tiny_vocabulary_keeps_the_reference() -> None:
    config = compose(["loss=ntl_was"])
    network = GPT2LMHeadModel(GPT2Config(vocab_size=WIDTH - 1, n_embd=16, n_layer=1, n_head=2, n_positions=16))
    vocab = NumberVocabulary.from_values([float("nan")] * 3 + list(range(10)))
    terms = terms_of(config.loss, vocab)
    objective = NextToken(config.objective, model=network, terms=terms, number_vocab=vocab).train()
    ids = torch.randint(3, 13, (4, 8))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    assert isinstance(objective(**given, counts=objective.count(ids)), JointLoss)
    assert objective._implementation(ids.device) == "reference"


@pytest.mark.parametrize("implementation", ["fused", "linear", "triton"])
def test_a_loss_of_ones_own_is_not_fused(implementation: str) -> None:
    config = compose(["loss=ntl_was", f"loss.implementation={implementation}"])
    own = Terms(Loss(lambda *args, **options: args[0].sum()), implementation=config.loss.implementation.name)
    with pytest.raises(
        UserError, match=rf"loss\.implementation={implementation}: knows the losses of ntl\.losses alone"
    ):
        NextToken(config.objective, model=model("gpt2"), terms=own, number_vocab=VOCAB)


def test_triton_without_a_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = compose(["loss=ntl_was", "loss.implementation=triton"])
    message = r"^loss\.implementation='triton' needs logits on a CUDA device, not on cpu; take 'fused', or auto\.$"
    with pytest.raises(UserError, match=message):
        NextToken(config.objective, model=model("gpt2"), terms=terms_of(config.loss, VOCAB), number_vocab=VOCAB)
    # A machine may have a GPU that this run does not use.
    monkeypatch.setattr("ntl.training.objectives.next_token.NextToken._check_triton", lambda *given: None)
    objective = NextToken(
        config.objective, model=model("gpt2"), terms=terms_of(config.loss, VOCAB), number_vocab=VOCAB
    ).train()
    monkeypatch.undo()
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    ids = torch.randint(3, 13, (4, 8))
    with pytest.raises(UserError, match=message):
        objective(ids, torch.ones_like(ids), ids, counts=objective.count(ids))
