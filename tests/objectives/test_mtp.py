"""Multi-token prediction: every head by hand, and `MultiToken` in a loop against the objective of ``train.py``."""

import copy
import warnings
from pathlib import Path
from typing import Any

import peft
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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

from ntl.config import UserError
from ntl.config.loss import MTPConfig
from ntl.losses import NumberTokenLoss, ce_ntl
from ntl.models.mtp import Decoder, add_heads
from ntl.objectives import MultiToken
from ntl.objectives.mtp import MultiTokenPrediction, labels_ahead, scheduled


def _loss(**options: Any) -> NumberTokenLoss:
    return NumberTokenLoss(vocabulary(), shift=True, **options)


def _total(multi: MultiToken, model: Any, given: dict[str, Tensor], **more: Any) -> Tensor:
    inputs = {name: each for name, each in given.items() if name != "labels"}
    return multi(model(**inputs), given["labels"], **more)


def _objective(architecture: str, **settings: Any) -> Any:
    """That of ``train.py``, with the last of five blocks as its heads."""
    config, model = MTPConfig(**settings), decoder(architecture, 5)
    add_heads(model, config)
    loss = NumberTokenLoss(vocabulary(), shift=False)
    return MultiTokenPrediction(config, model=spread(model), loss=loss, implementation="reference")


def _batch() -> dict[str, Tensor]:
    """With the next token of each position as its label."""
    made = make_batch()
    return made | {"labels": F.pad(made["labels"][:, 1:], (0, 1), value=IGNORED)}


# ---- labels, weights and schedules of heads


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


def test_schedules_by_hand() -> None:
    weights = [1.0, 0.5, 0.25]
    for schedule, by_progress in {
        "constant": {0.9: [1, 0.5, 0.25]},
        "forward": {0.0: [1, 0, 0], 0.4: [1, 0.5, 0], 0.7: [1, 0.5, 0.25]},
        "reverse": {0.3: [1, 0.5, 0.25], 0.4: [1, 0.5, 0], 0.7: [1, 0, 0]},
        "annealed": {0.0: [1, 0.5, 0.25], 1 / 6: [1, 0.5, 0.125], 0.5: [1, 0.25, 0], 0.9: [1, 0, 0]},
    }.items():
        for progress, expected in by_progress.items():
            assert scheduled(weights, schedule, progress) == pytest.approx(expected), (schedule, progress)


@pytest.mark.parametrize("architecture", list(SHAPES))
def test_a_parallel_head_is_a_model_that_ends_in_its_block(architecture: str) -> None:
    """Logits of head k are those of the model whose last block is head k's; the loss is that of the labels k - 1 on."""
    weights = [1.0, 0.5, 2.0]
    objective, batch = _objective(architecture, heads=3, head_weights=weights), _batch()
    objective.train()
    joint = objective(**batch, counts=objective.count(batch["labels"]))
    total = 0.0
    for index in range(3):
        alone = copy.deepcopy(objective.model)
        if index:
            alone.get_decoder()._modules["h" if architecture == "gpt2" else "layers"][-1] = alone.mtp_heads[index - 1]
        logits = alone(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
        expected = ce_ntl(logits, labels_ahead(batch["labels"], index, [END]), vocabulary())
        total = total + weights[index] * expected.total
        for found, term in zip(joint.heads[index][:2], (expected.base, expected.number), strict=True):
            torch.testing.assert_close(found.sum, term.sum)
            assert found.count == term.count
    torch.testing.assert_close(joint.total, total)


def test_evaluation_gives_each_head_by_example() -> None:
    objective, batch = _objective("qwen2", heads=3), _batch()
    with torch.no_grad():
        training, rows = objective.train()(**batch), objective.eval()(**batch)
        logits = objective.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    for head, trained in zip(rows.heads, training.heads, strict=True):
        for term, same in zip(head[:2], trained[:2], strict=True):
            torch.testing.assert_close(term.sum.sum(), same.sum)
            assert term.count.sum() == same.count
        correct, scored = head[2]
        assert scored.tolist() == head[0].count.tolist()
        assert (correct <= scored).all()
    assert rows.heads[0][2].sum.tolist() == (logits.argmax(-1) == batch["labels"]).sum(-1).tolist()
    torch.testing.assert_close(rows.base.sum, rows.heads[0][0].sum)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]], ids=["parallel", "sequential"])
def test_weights_belong_to_the_labels_of_each_head(kind: dict[str, Any]) -> None:
    objective, batch = _objective("llama", heads=3, **kind), _batch()
    weights, ones = torch.tensor([[2.0], [1.0], [0.0]]).expand(batch["labels"].shape), torch.ones(3, 10, 2)
    found = []
    for given in ({name: values[[0, 0, 1]] for name, values in batch.items()}, batch | {"loss_weights": weights}):
        objective.zero_grad()
        joint = objective.train()(**given, counts=objective.count(given["labels"], given.get("loss_weights")))
        joint.total.backward()
        found.append((torch.stack(joint.flat), gradients(objective)))
    torch.testing.assert_close(found[1][0], found[0][0])
    assert_same(found[1][1], found[0][1])
    with torch.no_grad():
        joints = [objective.eval()(**batch, **more) for more in ({}, {"loss_weights": ones})]
    torch.testing.assert_close(torch.stack(joints[1].flat), torch.stack(joints[0].flat), rtol=0, atol=0)


def test_blocks_and_their_number(tmp_path: Path, caplog) -> None:
    """Head 1 takes the last block and the others copies of it; as many weights as before, but with ``keep_depth``."""
    model = decoder("gpt2", 5)
    last = copy.deepcopy(model.transformer.h[-1].state_dict())
    model.save_pretrained(tmp_path)
    for keep_depth, left in ((True, 5), (None, 3)):
        heads = copy.deepcopy(model)
        caplog.clear()
        add_heads(heads, MTPConfig(heads=3, keep_depth=keep_depth), str(tmp_path))
        assert len(heads.transformer.h) == heads.config.num_hidden_layers == left
        for block in (heads.transformer.h[-1], *heads.mtp_heads):
            torch.testing.assert_close(dict(block.state_dict()), dict(last), rtol=0, atol=0)
        assert [block.attn.layer_idx for block in heads.mtp_heads] == [left, left + 1]
        assert len(caplog.messages) == (0 if keep_depth else 1)  # that blocks in between are removed

    def count(model: Any) -> int:
        return sum(each.numel() for each in model.parameters())

    whole, block = count(decoder("llama", 5)), count(Decoder(decoder("llama", 5)).blocks[0])
    for settings, more in (
        ({}, 0),
        ({"variant": "causal"}, 0),
        ({"keep_depth": True}, 3 * block),
        ({"variant": "linear"}, 3 * 16 * 16),
        ({"kind": "sequential"}, 3 * (block + 2 * 16 * 16 + 3 * 16)),
    ):
        heads = add_heads(decoder("llama", 5), MTPConfig(heads=4, **settings))
        assert count(heads) - whole == more, settings
    assert Decoder(add_heads(decoder("llama", 5), MTPConfig(heads=4))).blocks[-1].self_attn.layer_idx == 1


# ---- `MultiToken`


@pytest.mark.parametrize(
    ("kind", "architecture", "implementation"),
    [
        *((kind, "llama", "reference") for kind in KINDS),
        *((kind, "llama", "fused") for kind in (KINDS[1], *KINDS[3:])),
        *((kind, "gpt2", "reference") for kind in (KINDS[0], KINDS[3])),
    ],
)
def test_loss_and_gradients_are_those_of_train_py(kind: dict[str, Any], architecture: str, implementation: str) -> None:
    """Whose heads run one at a time, or all at once."""
    model = decoder(architecture, tied=architecture == "gpt2")
    settings = {"loss": _loss(implementation=implementation), "head_weights": [1.0, 0.5, 0.0, 2.0], **kind}
    multi, batch = MultiToken(model, 4, **settings), make_batch()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    spread(model).train()
    logged = multi.parts(model(**inputs), batch["labels"])
    (logged.total * 1.7).backward()
    found, shifted = gradients(model), F.pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
    assert len(found) == len(list(model.parameters())), "every weight is trained"
    objective = multi.objective
    for objective.settings.one_at_a_time in (True, False):
        model.zero_grad()
        joint = objective(batch["input_ids"], batch["attention_mask"], shifted, counts=objective.count(shifted))
        (joint.total * 1.7).backward()
        torch.testing.assert_close(logged.total, joint.total, rtol=0, atol=1e-12)
        assert_same(found, gradients(model), 1e-12)
        torch.testing.assert_close(logged.flat, joint.flat)


@pytest.mark.parametrize("told", ["position_ids", "seq_idx"])
def test_no_head_looks_across_documents(told: str) -> None:
    """Two documents of three and four tokens in a row, the labels of one token left out."""
    model = spread(decoder("llama"))
    multi = MultiToken(model, 3, kind="shared")
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7]])
    apart = {"position_ids": [[0, 1, 2, 0, 1, 2, 3]], "seq_idx": [[0, 0, 0, 1, 1, 1, 1]]}[told]
    labels = ids.clone()
    labels[0, 5] = IGNORED
    batch = {"input_ids": ids, "labels": labels, told: torch.tensor(apart)}
    pairs = {1: [(0, 1), (1, 2), (3, 4), (5, 6)], 2: [(0, 2), (4, 6)], 3: [(3, 6)]}
    assert multi.counts(batch)[:, 0].tolist() == [4, 2, 1]
    inputs = {"input_ids": ids, told: batch[told]}
    log_p = model(**inputs).logits[0].log_softmax(-1)
    expected = sum(-sum(log_p[at, labels[0, to]] for at, to in each) / len(each) for each in pairs.values())
    torch.testing.assert_close(multi(model(**inputs), labels), expected)


def test_what_ends_a_document_without_them() -> None:
    """An end token; and nothing where the model has none."""
    multi = MultiToken(spread(decoder("llama")), 2, kind="shared")
    batch = {"labels": torch.tensor([[1, 2, END, 3, 4]])}
    assert multi.counts(batch)[:, 0].tolist() == [4, 2]  # 1 -> END and 2 -> 3 are left: the latter crosses
    multi.objective.model.generation_config.eos_token_id = multi.objective.model.config.eos_token_id = None
    assert multi.counts(batch)[:, 0].tolist() == [4, 3]


@pytest.mark.parametrize("kind", KINDS[3:], ids=KIND_NAMES[3:])
def test_one_batch_is_its_rows_accumulated(kind: dict[str, Any]) -> None:
    model = spread(decoder("llama"))
    multi, batch = MultiToken(model, 3, loss=_loss(), **kind), make_batch(8)
    spread(model)
    whole = _total(multi, model, batch)
    whole.backward()
    expected = gradients(model)
    model.zero_grad()
    rows = [{name: each[row : row + 1] for name, each in batch.items()} for row in range(8)]
    counts = sum(multi.counts(each) for each in rows)
    parts = [_total(multi, model, each, num_items_in_batch=counts) for each in rows]
    sum(parts).backward()
    torch.testing.assert_close(sum(parts), whole, rtol=0, atol=1e-12)
    assert_same(gradients(model), expected, 1e-12)
    # Of the number of labels alone, each term is that of the batch times its share of the step.
    one = _total(multi, model, batch, num_items_in_batch=2 * int(multi.counts(batch)[0, 0]))
    torch.testing.assert_close(one, whole / 2)


@pytest.mark.parametrize("kind", [KINDS[0], *KINDS[2:4]], ids=["independent", "linear", "sequential"])
def test_saved_with_the_model_and_loaded_again(kind: dict[str, Any], tmp_path: Path) -> None:
    model, batch = decoder("gpt2"), make_batch()
    multi = MultiToken(model, 3, **kind)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    expected = _total(multi, model, batch)
    model.save_pretrained(tmp_path)
    names = [name for name in model.state_dict() if "mtp" in name]
    assert names[0].startswith("mtp.layers.0." if kind.get("kind") else "mtp_heads.0.")
    stock = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    torch.testing.assert_close(stock(**inputs).logits, model(**inputs).logits)
    torch.testing.assert_close(_total(MultiToken(stock, 3, **kind), stock, batch), expected)
    if not kind.get("kind"):
        other = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
        with pytest.raises(UserError, match=r"2 heads beside its own, which do not fit .* objective.kind=sequential"):
            MultiToken(other, 3, kind="sequential")


def test_the_heads_alone() -> None:
    model, batch = spread(decoder("llama")), make_batch()
    before = model(batch["input_ids"]).logits
    multi = MultiToken(model, 3, train_only="heads")
    _total(multi, model, batch).backward()
    found = gradients(model)
    assert {name.split(".")[0] for name in found} == {"mtp_heads"}
    assert len(found) == len([name for name, _ in model.mtp_heads.named_parameters()])
    torch.testing.assert_close(model(batch["input_ids"]).logits, before, rtol=0, atol=0)


def test_checkpointed_blocks_and_generation() -> None:
    model, batch = spread(decoder("llama")), make_batch()
    multi = MultiToken(model, 3, variant="causal")
    spread(model).train()
    _total(multi, model, batch).backward()
    expected = gradients(model)
    model.zero_grad()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    _total(multi, model, batch).backward()
    assert_same(gradients(model), expected, 1e-12)
    model.gradient_checkpointing_disable()
    found = model.eval().generate(batch["input_ids"][2:], max_new_tokens=4, do_sample=False, eos_token_id=None)
    ids = batch["input_ids"][2:]
    for _ in range(4):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    assert found.tolist() == ids.tolist()


@pytest.mark.parametrize(
    ("kind", "name"), [(KINDS[2], "mtp_heads.0"), (KINDS[3], "eh_proj")], ids=["linear", "sequential"]
)
def test_new_weights_that_adapters_freeze_are_told(kind: dict[str, Any], name: str) -> None:
    """An adapter on an identity can be loaded again; one on a random weight cannot, which is not saved with it."""
    random = name == "eh_proj"
    for adapters, saved, told in ((["q_proj"], None, 1), (["q_proj"], [name], 0), ("all-linear", None, int(random))):
        model = spread(decoder("llama"))
        multi, batch = MultiToken(model, 2, **kind), make_batch()
        adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=adapters, modules_to_save=saved)).train()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                multi(adapted(batch["input_ids"]), batch["labels"]).backward()
        assert sum(f"modules_to_save=['{name}', ...]" in str(each.message) for each in caught) == told


@pytest.mark.parametrize("kind", [KINDS[0], *KINDS[2:4]], ids=["independent", "linear", "sequential"])
def test_heads_are_made_where_the_model_is(kind: dict[str, Any]) -> None:
    model = decoder("llama").to("meta")
    add_heads(model, MTPConfig(name="mtp", heads=2, keep_depth=True, **kind), "", copies=True)
    assert {each.device.type for each in model.parameters()} == {"meta"}


def test_sharded_weights_are_refused(tmp_path: Path) -> None:
    model = spread(decoder("llama"))
    MultiToken(model, 2, kind="shared")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(ValueError, match="FSDP has sharded them; use DDP"):
            model(torch.tensor([[1, 2, 3]]))
    finally:
        torch.distributed.destroy_process_group()


def test_wrong_uses(caplog) -> None:
    model = spread(decoder("llama"))
    for given, named in (
        ({"heads": 0}, "heads"),
        ({"kind": "medusa"}, "kind"),
        ({"head_schedule": "cosine"}, "head_schedule"),
        ({"head_weights": [1.0]}, "one for each of the 2 heads"),
        ({"head_weights": [1.0, -1.0]}, "none negative"),
        ({"head_weights": [0.0, 0.0]}, "not all 0"),
        ({"kind": "shared", "variant": "causal"}, "variant"),
        ({"kind": "shared", "train_only": "heads"}, "train_only"),
        ({"loss": NumberTokenLoss(vocabulary(), shift=False)}, "shift"),
    ):
        with pytest.raises(ValueError, match=named):
            MultiToken(model, **given)
    text: Any = "was"
    with pytest.raises(TypeError, match="loss='was': give a NumberTokenLoss"):
        MultiToken(model, loss=text)
    model.config.is_encoder_decoder = True
    with pytest.raises(ValueError, match="labels of an encoder-decoder are not shifted: give a decoder"):
        MultiToken(model, kind="shared")
    model.config.is_encoder_decoder = False
    multi, batch = MultiToken(model), make_batch()
    model._is_replica = True  # as torch's DataParallel makes them
    with pytest.raises(ValueError, match="DataParallel several threads; start a process for each GPU"):
        model(batch["input_ids"])
    del model._is_replica
    outputs = model(batch["input_ids"])
    none: Any = None
    with pytest.raises(TypeError, match="takes labels"):  # as a Trainer calls it whose batches have none
        multi(outputs, none)
    multi(outputs, batch["labels"])
    with pytest.raises(TypeError, match="once"):
        multi(outputs, batch["labels"])
    with pytest.raises(ValueError, match="has heads already"):
        MultiToken(model)
    with pytest.raises(UserError, match=r"objective.heads=6: the model has 5 blocks.*keep_depth=true"):
        add_heads(decoder("gpt2", 5), MTPConfig(heads=6, keep_depth=False))
    add_heads(decoder("gpt2", 5), MTPConfig(heads=6))
    assert "its depth is kept" in caplog.messages[0]
    moe = decoder("llama", 5)
    moe.config.router_aux_loss_coef = 0.1
    with pytest.raises(UserError, match="mixture of experts"):
        add_heads(moe, MTPConfig())
