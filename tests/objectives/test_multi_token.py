"""`MultiToken` in a loop, transformers' Trainer and TRL: by hand, and against the objective of ``train.py``."""

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import torch.nn.functional as F
from mtp_cases import END, IGNORED, KIND_NAMES, KINDS, assert_same, decoder, gradients, make_batch, spread, vocabulary
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from ntl.config.loss import MTPConfig
from ntl.losses import NumberTokenLoss, NumberTokenLossMixin
from ntl.models.mtp import add_heads
from ntl.objectives import MultiToken
from ntl.objectives.mtp import scheduled


def _loss(**options: Any) -> NumberTokenLoss:
    return NumberTokenLoss(vocabulary(), shift=True, **options)


def _total(multi: MultiToken, model: Any, given: dict[str, Tensor], **more: Any) -> Tensor:
    inputs = {name: each for name, each in given.items() if name != "labels"}
    return multi(model(**inputs), given["labels"], **more)


@pytest.mark.parametrize(
    ("kind", "architecture", "implementation"),
    [
        *((kind, "llama", "reference") for kind in KINDS),
        *((kind, "llama", "fused") for kind in (KINDS[1], *KINDS[3:])),
        *((kind, "gpt2", "reference") for kind in (KINDS[0], KINDS[3])),
    ],
)
def test_loss_and_gradients_are_those_of_train_py(kind: dict[str, Any], architecture: str, implementation: str) -> None:
    model = decoder(architecture)
    settings = {"loss": _loss(implementation=implementation), "head_weights": [1.0, 0.5, 2.0], **kind}
    multi, batch = MultiToken(model, 3, **settings), make_batch()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    spread(model).train()
    logged = multi.parts(model(**inputs), batch["labels"])
    logged.total.backward()
    found, shifted = gradients(model), F.pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
    model.zero_grad()
    objective = multi.objective
    joint = objective(batch["input_ids"], batch["attention_mask"], shifted, counts=objective.count(shifted))
    joint.total.backward()
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
    said: list[str] = []
    torch.testing.assert_close(_total(MultiToken(stock, 3, say=said.append, **kind), stock, batch), expected)


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


class _Trainer(NumberTokenLossMixin, Trainer):
    pass


_Trainer.__name__ = "Trainer"  # as a user's own may be


@pytest.mark.parametrize(
    ("kind", "name"), [(KINDS[2], "mtp_heads.0"), (KINDS[3], "eh_proj")], ids=["linear", "sequential"]
)
def test_new_weights_that_adapters_freeze_are_told(kind: dict[str, Any], name: str) -> None:
    for saved, told in ((None, 1), ([name], 0)):
        model = spread(decoder("llama"))
        multi, batch = MultiToken(model, 2, **kind), make_batch()
        adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], modules_to_save=saved)).train()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                multi(adapted(batch["input_ids"]), batch["labels"]).backward()
        assert sum(f"modules_to_save=['{name}', ...]" in str(each.message) for each in caught) == told


@pytest.mark.parametrize("kind", [KINDS[0], *KINDS[2:4]], ids=["independent", "linear", "sequential"])
def test_heads_are_made_where_the_model_is(kind: dict[str, Any]) -> None:
    model = decoder("llama").to("meta")
    add_heads(model, MTPConfig(name="mtp", heads=2, keep_depth=True, **kind), "", print, copies=True)
    assert {each.device.type for each in model.parameters()} == {"meta"}


def test_predictions(tmp_path: Path) -> None:
    """What one has left is in no evaluation, and one of rows without labels is that of the model."""
    batches = [make_batch(4), make_batch(4)]
    batches[1]["labels"] = batches[1]["input_ids"] = batches[1]["input_ids"].flip(1)
    rows, others = ([{name: each[row] for name, each in batch.items()} for row in range(4)] for batch in batches)
    model = spread(decoder("llama"))
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    trainer = _Trainer(model, arguments, number_token_loss=MultiToken(model, loss=_loss()))
    first = trainer.evaluate(rows)["eval_ce"]
    trainer.predict(others)  # pyright: ignore[reportArgumentType]
    assert trainer.evaluate(rows)["eval_ce"] == first
    bare: Any = [{"input_ids": row["input_ids"]} for row in others]
    for each in (trainer, Trainer(model, arguments, compute_loss_func=trainer.number_token_loss)):
        found = each.predict(bare)
        torch.testing.assert_close(torch.tensor(found.predictions), model(batches[1]["input_ids"]).logits)
        assert "test_loss" not in (found.metrics or {})


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]], ids=["independent", "sequential"])
@pytest.mark.slow
def test_transformers_trainer_logs_every_head_and_accumulates(kind: dict[str, Any], tmp_path: Path) -> None:
    batch, lines = make_batch(8), []
    rows = [{name: each[row] for name, each in batch.items()} for row in range(8)]
    for size in (8, 1):
        model = spread(decoder("llama"))
        multi = MultiToken(model, 3, loss=_loss(), head_schedule="annealed", **kind)
        multi.progress = 0.0
        expected = _total(multi, spread(model), batch).item()
        cut = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size, "max_steps": 2}
        off: dict[str, Any] = {"report_to": "none", "save_strategy": "no", "use_cpu": True}
        arguments = TrainingArguments(str(tmp_path), logging_steps=1, max_grad_norm=0.0, **cut, **off)
        trainer = _Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, number_token_loss=multi)
        trainer.train()
        assert trainer.state.log_history[0]["loss"] == pytest.approx(expected, rel=1e-6)
        assert multi.progress == 0.5
        lines.append([*trainer.state.log_history[:2], trainer.evaluate()])
    for one, other in zip(*lines, strict=True):
        for name in one:
            if "ce" in name or "ntl" in name or name == "loss":
                assert one[name] == pytest.approx(other[name], rel=1e-6), name
    assert {"ce", "ntl", "ce/head2", "ntl/head2", "ce/head3"} <= lines[0][0].keys()
    assert {"eval_ce", "eval_ntl/head3"} <= lines[0][2].keys()
    assert not any(name.startswith("eval") for name in lines[0][0])


@pytest.mark.slow
def test_trl_packs_documents(chat_tokenizer: Any, tmp_path: Path) -> None:
    """Completions alone, packed: what TRL logs is the loss of the documents one by one."""
    trl = pytest.importorskip("trl", reason="TRL is not installed; the dev extra has it")

    class SFT(NumberTokenLossMixin, trl.SFTTrainer):
        pass

    from datasets import Dataset

    tokenizer, model = chat_tokenizer(), spread(decoder("llama"))
    model.resize_token_embeddings(len(tokenizer))
    model = spread(model).float()
    multi = MultiToken(model, 3)
    rows = [{"prompt": f"What is {n}?", "completion": f" {n * 37}+{n}"} for n in range(3, 9)]
    off: dict[str, Any] = {"report_to": "none", "save_strategy": "no", "use_cpu": True, "bf16": False}
    packed = {"packing": True, "max_length": 64, "completion_only_loss": True, "max_steps": 1, "logging_steps": 1}
    config = trl.SFTConfig(str(tmp_path), per_device_train_batch_size=8, learning_rate=0.0, **packed, **off)
    parts = {"train_dataset": Dataset.from_list(rows), "processing_class": tokenizer, "number_token_loss": multi}
    trainer = SFT(model, config, **parts)
    (batch,) = trainer.get_train_dataloader()
    assert len(batch["input_ids"]) == 1
    starts = [*(batch["position_ids"][0] == 0).nonzero()[:, 0].tolist(), batch["input_ids"].shape[1]]
    assert len(starts) == len(rows) + 1
    parts = [
        {name: batch[name][:, a:b] for name in ("input_ids", "labels", "position_ids")} for a, b in pairwise(starts)
    ]
    counts = multi.counts(batch)
    with torch.no_grad():
        totals = [_total(multi, model, part, num_items_in_batch=counts).item() for part in parts]
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(sum(totals), rel=1e-4)


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


def test_schedules_by_hand() -> None:
    weights = [1.0, 0.5, 0.25]
    for schedule, progress, expected in (
        ("constant", 0.9, [1, 0.5, 0.25]),
        ("forward", 0.0, [1, 0, 0]),
        ("forward", 0.4, [1, 0.5, 0]),
        ("forward", 0.7, [1, 0.5, 0.25]),
        ("reverse", 0.3, [1, 0.5, 0.25]),
        ("reverse", 0.4, [1, 0.5, 0]),
        ("reverse", 0.7, [1, 0, 0]),
        ("annealed", 0.0, [1, 0.5, 0.25]),
        ("annealed", 1 / 6, [1, 0.5, 0.125]),
        ("annealed", 0.5, [1, 0.25, 0]),
        ("annealed", 0.9, [1, 0, 0]),
    ):
        assert scheduled(weights, schedule, progress) == pytest.approx(expected), (schedule, progress)


def test_wrong_uses() -> None:
    model = spread(decoder("llama"))
    for given, line in (
        ({"heads": 0}, "heads=0"),
        ({"kind": "medusa"}, "kind must be 'parallel' or 'sequential' or 'shared', not 'medusa'"),
        ({"head_schedule": "cosine"}, "head_schedule must be"),
        ({"head_weights": [1.0]}, "one for each of the 2 heads"),
        ({"head_weights": [1.0, -1.0]}, "none negative"),
        ({"head_weights": [0.0, 0.0]}, "not all 0"),
        ({"kind": "shared", "variant": "causal"}, "variant='causal'"),
        ({"kind": "shared", "train_only": "heads"}, "no heads are added"),
        ({"loss": NumberTokenLoss(vocabulary(), shift=False)}, "shift=True"),
    ):
        with pytest.raises(ValueError, match=line):
            MultiToken(model, **given)
    multi, batch = MultiToken(model), make_batch()
    outputs = model(batch["input_ids"])
    multi(outputs, batch["labels"])
    with pytest.raises(TypeError, match="once"):
        multi(outputs, batch["labels"])
    with pytest.raises(ValueError, match="has heads already"):
        MultiToken(model)
