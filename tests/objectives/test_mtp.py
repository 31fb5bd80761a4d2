"""Multi-token prediction: every head recomputed by hand, gradients against the plain sum, and whole runs."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mtp_cases import (
    END,
    IGNORED,
    KIND_NAMES,
    KINDS,
    SHAPES,
    assert_same,
    decoder,
    gradients,
    make_batch,
    spread,
    vocabulary,
)
from torch import Tensor

from ntl.config import UserError
from ntl.config.loss import MTPConfig
from ntl.losses import NumberTokenLoss, ce_ntl
from ntl.models.mtp import Decoder, add_heads
from ntl.objectives.mtp import MultiTokenPrediction, labels_ahead

of_every_kind = pytest.mark.parametrize("kind", KINDS[:4], ids=KIND_NAMES[:4])
of_either_kind = pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]], ids=["parallel", "sequential"])


def _objective(model: Any, loss: str = "was", implementation: str = "reference", **settings: Any) -> Any:
    config = MTPConfig(**settings)
    add_heads(model, config, say=lambda line: None)
    made = NumberTokenLoss(vocabulary(), shift=False, kind=loss)
    return MultiTokenPrediction(config, model=spread(model), loss=made, implementation=implementation)


def _model(architecture: str, **options: Any) -> Any:
    return decoder(architecture, 5, **options)


def _batch() -> dict[str, Tensor]:
    """With the next token of each position as its label."""
    made = make_batch()
    return made | {"labels": F.pad(made["labels"][:, 1:], (0, 1), value=IGNORED)}


def _gradients(objective: Any, batch: dict[str, Tensor], counts: Tensor | None = None) -> tuple[Any, dict[str, Tensor]]:
    objective.zero_grad()
    torch.manual_seed(6)
    joint = objective.train()(**batch, counts=objective.count(batch["labels"]) if counts is None else counts)
    (joint.total * 1.7).backward()
    return joint, gradients(objective)


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
        expected = ce_ntl(logits, labels_ahead(batch["labels"], index, [END]), vocabulary())
        total = total + expected.total
        for found, term in zip(joint.heads[index][:2], (expected.base, expected.number), strict=True):
            torch.testing.assert_close(found.sum, term.sum)
            assert found.count == term.count
    torch.testing.assert_close(joint.total, total)


@pytest.mark.parametrize(("architecture", "tied"), [("gpt2", True), ("llama", False)])
@of_every_kind
def test_gradients_are_those_of_the_plain_sum(architecture: str, kind: dict[str, str], tied: bool) -> None:
    settings = {"heads": 4, "head_weights": [1.0, 0.5, 0.0, 2.0], **kind}
    objective = _objective(_model(architecture, tied=tied), **settings)
    joint, found = _gradients(objective, _batch())
    objective.settings.one_at_a_time = False
    plain, expected = _gradients(objective, _batch())
    assert_same(found, expected)
    torch.testing.assert_close(torch.stack(joint.flat), torch.stack(plain.flat), rtol=0, atol=1e-9)
    torch.testing.assert_close(joint.total, plain.total, rtol=0, atol=1e-9)
    assert len(found) == len(list(objective.parameters())), "every weight is trained"


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


@of_either_kind
def test_weights_belong_to_the_labels_of_each_head(kind: dict[str, Any]) -> None:
    objective, batch = _objective(_model("llama"), heads=3, **kind), _batch()
    rows = {name: values[[0, 0, 1]] for name, values in batch.items()}
    weights = torch.tensor([[2.0], [1.0], [0.0]]).expand(batch["labels"].shape)
    expected, gradients = _gradients(objective, rows)
    found, own = _gradients(objective, batch | {"loss_weights": weights}, objective.count(batch["labels"], weights))
    torch.testing.assert_close(torch.stack(found.flat), torch.stack(expected.flat))
    assert_same(own, gradients)
    ones = torch.ones(*batch["labels"].shape, 2)
    with torch.no_grad():
        joints = [objective.eval()(**batch, **more) for more in ({}, {"loss_weights": ones})]
    torch.testing.assert_close(torch.stack(joints[1].flat), torch.stack(joints[0].flat), rtol=0, atol=0)
