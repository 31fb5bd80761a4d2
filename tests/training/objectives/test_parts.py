"""Losses that compute both terms at once train as those that compute one after the other do."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from ntl.config import UserError, compose
from ntl.losses.joint import FASTER_FROM
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.next_token import NextToken
from ntl.training.objectives.parts import Joint, Parts
from ntl.training.objectives.terms import LossTerms

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
    family: str, implementation: str, loss: str, dropout: float, steps: int = 20
) -> tuple[list[float], Any, set]:
    config = compose([f"loss={loss}", f"loss.implementation={implementation}"])
    network = model(family, dropout)
    objective = NextToken(
        config.objective, model=network, terms=LossTerms.from_config(config.loss, VOCAB), number_vocab=VOCAB
    )
    objective.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    found, kinds = [], set()
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
        kinds.add(type(result))
        if isinstance(result, Joint):
            total = result.total
        else:
            total = result.ce_sum / counts[0] + objective.terms.weight * result.ntl_sum / counts[1]
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        parts = result.parts if isinstance(result, Joint) else result
        found += [total.item(), parts.ce_sum.item(), parts.ntl_sum.item()]
    return found, network, kinds


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    "loss", ["ntl_was", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ce", "gce_ntl_was"))]
)
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_twenty_steps_are_those_of_the_reference(family: str, loss: str, dropout: float) -> None:
    expected, reference, kinds = trained(family, "reference", loss, dropout)
    assert kinds == {Parts}
    for implementation in ("auto", "fused", "linear"):
        losses, network, kinds = trained(family, implementation, loss, dropout)
        assert kinds == {Joint}
        assert losses == pytest.approx(expected, rel=1e-5)
        for name, parameter in network.named_parameters():
            wanted = reference.get_parameter(name)
            assert (parameter - wanted).norm() <= 1e-5 * wanted.norm(), name


def test_evaluation_is_one_value_an_example() -> None:
    config = compose(["loss=ntl_was", "loss.implementation=linear"])
    terms = LossTerms.from_config(config.loss, VOCAB)
    objective = NextToken(config.objective, model=model("gpt2"), terms=terms, number_vocab=VOCAB).eval()
    ids = torch.randint(3, 13, (4, 8))
    parts = objective(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
    assert isinstance(parts, Parts)
    assert parts.ce_sum.shape == parts.ntl_count.shape == (4,)


def test_a_tiny_vocabulary_keeps_the_reference() -> None:
    config = compose(["loss=ntl_was"])
    network = GPT2LMHeadModel(GPT2Config(vocab_size=WIDTH - 1, n_embd=16, n_layer=1, n_head=2, n_positions=16))
    vocab = NumberVocabulary.from_values([float("nan")] * 3 + list(range(10)))
    terms = LossTerms.from_config(config.loss, vocab)
    objective = NextToken(config.objective, model=network, terms=terms, number_vocab=vocab).train()
    ids = torch.randint(3, 13, (4, 8))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    assert isinstance(objective(**given, counts=objective.count(ids)), Parts)


def test_a_loss_of_ones_own_is_not_fused(tmp_path: Path) -> None:
    config = compose(["loss=ntl_was", "loss.implementation=fused"])
    own = LossTerms(lambda *args, **options: args[0].sum(), None, 1.0, config.loss.implementation)
    with pytest.raises(UserError, match=r"loss\.implementation=fused: knows the losses of ntl\.losses alone"):
        NextToken(config.objective, model=model("gpt2"), terms=own, number_vocab=VOCAB)
