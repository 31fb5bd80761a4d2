"""Multi-token prediction: every head recomputed by hand, gradients against the plain sum, and whole runs."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from ntl.config import UserError
from ntl.config.loss import MTPConfig
from ntl.losses import ce_ntl
from ntl.losses.kinds import Terms
from ntl.models.mtp import Decoder, add_heads
from ntl.numbers import NumberVocabulary
from ntl.objectives.mtp import MultiTokenPrediction, labels_ahead

IGNORED, END, VOCABULARY = -100, 20, 24
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 5, "n_head": 2, "n_positions": 16},
    "llama": {"hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 2, "num_key_value_heads": 1},
    "qwen2": {"hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 2, "num_key_value_heads": 1},
    "granite": {"hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 2, "logits_scaling": 6.0},
}
KINDS = [*({"variant": variant} for variant in ("independent", "causal", "linear")), {"kind": "sequential"}]
KIND_NAMES = [next(iter(kind.values())) for kind in KINDS]


def _model(architecture: str, *, tied: bool = True, dropout: float = 0.0) -> Any:
    torch.manual_seed(3)
    shape = SHAPES[architecture] | ({} if architecture == "gpt2" else {"intermediate_size": 24})
    if architecture == "gpt2":
        shape |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    ids = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": 21}
    config = AutoConfig.for_model(architecture, vocab_size=VOCABULARY, tie_word_embeddings=tied, **ids, **shape)
    return AutoModelForCausalLM.from_config(config).double()


def _spread(model: Any) -> Any:
    """Weights far from uniform, so that a label one place off costs something else, and norms that keep float64.

    Those of transformers compute in float32.
    """
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if "RMSNorm" in type(child).__name__:
                setattr(parent, name, torch.nn.RMSNorm(child.weight.shape[0], eps=1e-6, dtype=torch.float64))
    torch.manual_seed(4)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def _vocab() -> NumberVocabulary:
    return NumberVocabulary.from_values([float(token) if token < 10 else float("nan") for token in range(VOCABULARY)])


def _objective(model: Any, loss: str = "was", implementation: str = "reference", **settings: Any) -> Any:
    config = MTPConfig(**settings)
    add_heads(model, config, say=lambda line: None)
    terms = Terms.of(loss, 0.3, {})
    terms = Terms(terms.base, terms.numbers, terms.weight, implementation)
    return MultiTokenPrediction(config, model=_spread(model), terms=terms, number_vocab=_vocab())


def _batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, 20, (3, 10), generator=generator)
    labels = torch.cat([ids[:, 1:], torch.full((3, 1), END)], dim=1)
    mask = torch.ones_like(ids)
    labels[0, :4] = IGNORED  # a question
    labels[1, 7:], mask[1, 8:], ids[1, 8:] = IGNORED, 0, 21  # padding
    labels[2, 4] = END  # the end of a document
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _gradients(objective: Any, batch: dict[str, Tensor], counts: Tensor | None = None) -> tuple[Any, dict[str, Tensor]]:
    objective.zero_grad()
    torch.manual_seed(6)
    joint = objective.train()(**batch, counts=objective.count(batch["labels"]) if counts is None else counts)
    (joint.total * 1.7).backward()
    return joint, {name: each.grad.clone() for name, each in objective.named_parameters() if each.grad is not None}


def _same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, rtol=0, atol=1e-9, msg=lambda told, name=name: f"{name}: {told}")


def test_labels_ahead_by_hand() -> None:
    labels = torch.tensor([[IGNORED, 1, 2, 3, END, 4, 5]])
    expected = {
        0: [IGNORED, 1, 2, 3, END, 4, 5],
        1: [1, 2, 3, END, IGNORED, 5, IGNORED],
        2: [2, 3, END, IGNORED, IGNORED, IGNORED, IGNORED],
        7: [IGNORED] * 7,
        9: [IGNORED] * 7,
    }
    for ahead, row in expected.items():
        assert labels_ahead(labels, ahead, [END])[0].tolist() == row
    assert labels_ahead(labels, 2, [])[0].tolist() == [2, 3, END, 4, 5, IGNORED, IGNORED]
    assert labels_ahead(labels, 1, [END, 2])[0].tolist() == [1, 2, IGNORED, END, IGNORED, 5, IGNORED]


@pytest.mark.parametrize("architecture", list(SHAPES))
def test_a_parallel_head_is_a_model_that_ends_in_its_block(architecture: str) -> None:
    """Logits of head k are those of the model whose last block is head k's; the loss is that of the labels k - 1 on."""
    objective, batch = _objective(_model(architecture), heads=3), _batch()
    objective.train()
    joint = objective(**batch, counts=objective.count(batch["labels"]))
    total = 0.0
    for index in range(3):
        alone = copy.deepcopy(objective.model)
        if index:
            alone.get_decoder()._modules["h" if architecture == "gpt2" else "layers"][-1] = alone.mtp_heads[index - 1]
        logits = alone(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
        expected = ce_ntl(logits, labels_ahead(batch["labels"], index, [END]), _vocab())
        total = total + expected.total
        for found, term in zip(joint.heads[index][:2], (expected.base, expected.number), strict=True):
            torch.testing.assert_close(found.sum, term.sum)
            assert found.count == term.count
    torch.testing.assert_close(joint.total, total)


@pytest.mark.parametrize(("architecture", "tied"), [("gpt2", True), ("llama", False)])
@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_gradients_are_those_of_the_plain_sum(architecture: str, kind: dict[str, str], tied: bool) -> None:
    settings = {"heads": 4, "head_weights": [1.0, 0.5, 0.0, 2.0], **kind}
    objective = _objective(_model(architecture, tied=tied), **settings)
    joint, found = _gradients(objective, _batch())
    objective.settings.one_at_a_time = False
    plain, expected = _gradients(objective, _batch())
    _same(found, expected)
    torch.testing.assert_close(torch.stack(joint.flat), torch.stack(plain.flat), rtol=0, atol=1e-9)
    torch.testing.assert_close(joint.total, plain.total, rtol=0, atol=1e-9)
    assert len(found) == len(list(objective.parameters())), "every weight is trained"


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
@pytest.mark.parametrize("implementation", ["fused", "linear"])
def test_implementations_agree(implementation: str, kind: dict[str, str]) -> None:
    expected, found = (
        _gradients(_objective(_model("granite"), implementation=name, heads=3, **kind), _batch())
        for name in ("reference", implementation)
    )
    _same(found[1], expected[1])
    torch.testing.assert_close(torch.stack(found[0].flat), torch.stack(expected[0].flat))


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_one_batch_is_its_rows_accumulated(kind: dict[str, str]) -> None:
    objective, batch = _objective(_model("llama"), heads=3, **kind), _batch()
    counts = objective.count(batch["labels"])
    _, expected = _gradients(objective, batch)
    objective.zero_grad()
    for row in range(3):
        rows = {name: each[row : row + 1] for name, each in batch.items()}
        (objective(**rows, counts=counts).total * 1.7).backward()
    _same({name: each.grad for name, each in objective.named_parameters()}, expected)


def test_evaluation_gives_each_head_by_example() -> None:
    objective, batch = _objective(_model("qwen2"), heads=3), _batch()
    training, _ = _gradients(objective, batch)
    with torch.no_grad():
        rows = objective.eval()(**batch)
    for head, trained in zip(rows.heads, training.heads, strict=True):
        for term, same in zip(head[:2], trained[:2], strict=True):
            torch.testing.assert_close(term.sum.sum(), same.sum)
            assert term.count.sum() == same.count
        correct, scored = head[2]
        assert scored.tolist() == head[0].count.tolist()
        assert (correct <= scored).all()
    with torch.no_grad():
        logits = objective.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    assert rows.heads[0][2].sum.tolist() == (logits.argmax(-1) == batch["labels"]).sum(-1).tolist()
    torch.testing.assert_close(rows.base.sum, rows.heads[0][0].sum)


def test_the_number_of_weights() -> None:
    """As many as a next-token model has; ``keep_depth`` and sequential modules add theirs."""

    def count(model: Any) -> int:
        return sum(each.numel() for each in model.parameters())

    whole = count(_model("llama"))
    block = count(Decoder(_model("llama")).blocks[0])
    for settings, more in (
        ({}, 0),
        ({"variant": "causal"}, 0),
        ({"keep_depth": True}, 3 * block),
        ({"variant": "linear"}, 3 * 16 * 16),
        ({"kind": "sequential"}, 3 * (block + 2 * 16 * 16 + 3 * 16)),
    ):
        model = add_heads(_model("llama"), MTPConfig(heads=4, **settings), say=lambda line: None)
        assert count(model) - whole == more, settings
    assert Decoder(add_heads(_model("llama"), MTPConfig(heads=4))).blocks[-1].self_attn.layer_idx == 1


def test_learned_blocks(tmp_path: Any) -> None:
    """Head 1 takes the last block, the others copies of it; a line says that blocks in between are removed."""
    for keep_depth, left in ((True, 5), (None, 3)):
        model, said = _model("gpt2"), []
        last = copy.deepcopy(model.transformer.h[-1].state_dict())
        model.save_pretrained(tmp_path)
        add_heads(model, MTPConfig(heads=3, keep_depth=keep_depth), str(tmp_path), said.append)
        assert len(model.transformer.h) == model.config.num_hidden_layers == left
        for block in (model.transformer.h[-1], *model.mtp_heads):
            for name, each in block.state_dict().items():
                torch.testing.assert_close(each, last[name], rtol=0, atol=0)
        assert [block.attn.layer_idx for block in model.mtp_heads] == [left, left + 1]
        assert len(said) == (0 if keep_depth else 1)


def test_wrong_uses() -> None:
    with pytest.raises(UserError, match=r"objective.heads=6: the model has 5 blocks.*keep_depth=true"):
        add_heads(_model("gpt2"), MTPConfig(heads=6, keep_depth=False))
    said: list[str] = []
    add_heads(_model("gpt2"), MTPConfig(heads=6), say=said.append)
    assert "its depth is kept" in said[0]
    moe = _model("llama")
    moe.config.router_aux_loss_coef = 0.1
    with pytest.raises(UserError, match="mixture of experts"):
        add_heads(moe, MTPConfig())


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_weights_belong_to_the_labels_of_each_head(kind: dict[str, Any]) -> None:
    objective, batch = _objective(_model("llama"), heads=3, **kind), _batch()
    rows = {name: values[[0, 0, 1]] for name, values in batch.items()}
    weights = torch.tensor([[2.0], [1.0], [0.0]]).expand(batch["labels"].shape)
    expected, gradients = _gradients(objective, rows)
    found, own = _gradients(objective, batch | {"loss_weights": weights}, objective.count(batch["labels"], weights))
    torch.testing.assert_close(torch.stack(found.flat), torch.stack(expected.flat))
    _same(own, gradients)
    ones = torch.ones(*batch["labels"].shape, 2)
    with torch.no_grad():
        joints = [objective.eval()(**batch, **more) for more in ({}, {"loss_weights": ones})]
    torch.testing.assert_close(torch.stack(joints[1].flat), torch.stack(joints[0].flat), rtol=0, atol=0)
