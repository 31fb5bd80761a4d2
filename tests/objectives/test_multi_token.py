"""`MultiToken` in transformers' Trainer and TRL, and where DDP or mixed precision wraps the model.

As a program, one of two ranks under DDP.
"""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import mtp_cases
import pytest
import torch
import torch.distributed as dist
from mtp_cases import END, IGNORED, VOCABULARY, decoder, spread, vocabulary
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DataCollatorWithFlattening, Trainer, TrainingArguments

from ntl.losses import NumberTokenLoss, NumberTokenLossMixin
from ntl.losses.sums import means
from ntl.objectives import MultiToken

KINDS: list[dict[str, Any]] = [*mtp_cases.KINDS, {"train_only": "heads"}]
# DDP looks for unused parameters in the outputs, as transformers' Trainer has it do, or does not.
CASES = [(place, unused) for place in range(len(KINDS)) for unused in (False, True)]


def _multi(place: int, **options: Any) -> tuple[Any, MultiToken]:
    """The same weights on each rank, far from uniform."""
    model = decoder("gpt2")
    loss = NumberTokenLoss(vocabulary(), shift=True, **options)
    multi = MultiToken(model, 3, loss=loss, **KINDS[place])
    return spread(model).train(), multi


def _rows() -> dict[str, Tensor]:
    """Eight rows, of which the first four have fewer labels, and another share of numbers."""
    ids = torch.randint(0, 20, (8, 10), generator=torch.Generator().manual_seed(5))
    ids[6, 4] = END
    labels = ids.clone()
    labels[0, :8], labels[1, :6] = IGNORED, IGNORED
    return {"input_ids": ids, "labels": labels}


class _Trainer(NumberTokenLossMixin, Trainer):
    pass


_Trainer.__name__ = "Trainer"  # as a user's own may be


def _trained(folder: Path, size: int) -> tuple[dict[str, float], dict[str, Tensor]]:
    """A step of the Trainer: what it logs, and the weights behind it, whose change is the gradient.

    Then it evaluates seven rows and one row; two ranks have to fill the last batch of four.
    """
    model, multi = _multi(0)
    rows = [{name: each[row] for name, each in _rows().items()} for row in range(8)]
    off: dict[str, Any] = {"report_to": "none", "save_strategy": "no", "use_cpu": True, "max_grad_norm": 0.0}
    plain: dict[str, Any] = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant"}
    steps = {"per_device_train_batch_size": size, "max_steps": 1, "logging_steps": 1, "per_device_eval_batch_size": 4}
    arguments = TrainingArguments(str(folder), ddp_backend="gloo" if size < 8 else None, **off, **plain, **steps)
    trainer = _Trainer(model, arguments, train_dataset=rows, number_token_loss=multi)
    trainer.train()
    logged = {name: each for name, each in trainer.state.log_history[0].items() if "ce" in name or "ntl" in name}
    logged["loss"] = trainer.state.log_history[0]["loss"]
    for count in (7, 1):
        found = trainer.evaluate(rows[:count])  # pyright: ignore[reportArgumentType]
        logged |= {f"{name} of {count}": each for name, each in found.items() if re.search("ce|ntl|loss", name)}
    if size < 8:
        trainer.data_collator = DataCollatorWithFlattening()
        trainer.evaluate(rows[:7])  # pyright: ignore[reportArgumentType]
    return logged, model.state_dict()


@pytest.mark.slow
def test_two_ranks_with_four_rows_each_are_one_process_with_eight(tmp_path: Path) -> None:
    """The loss and all gradients, in float64, in a loop and in transformers' Trainer."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [sys.executable, *torchrun, __file__, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "joined rows that fill the last batch of an evaluation count twice" in done.stderr
    found, (logged, trained) = torch.load(tmp_path / "found.pt")
    for place, unused in CASES:
        model, multi = _multi(place)
        labels, counts = _rows()["labels"], multi.counts(_rows())
        assert (counts[:, 0] > 2 * multi.counts({"labels": labels[:4]})[:, 0]).all()
        expected = multi(model(_rows()["input_ids"]), labels)
        expected.backward()
        total, gradients = found[place, unused]
        torch.testing.assert_close(total, expected.detach(), rtol=0, atol=1e-12)
        assert gradients.keys() == mtp_cases.gradients(model).keys()
        for name, each in mtp_cases.gradients(model).items():
            torch.testing.assert_close(gradients[name], each, rtol=0, atol=1e-12)
    expected_log, weights = _trained(tmp_path, 8)
    assert {"ce/head3", "ntl/head2", "eval_loss of 7", "eval_ce of 1", "eval_ntl/head3 of 7"} <= expected_log.keys()
    assert logged == pytest.approx(expected_log, rel=1e-9)
    for name, each in weights.items():
        torch.testing.assert_close(trained[name], each, rtol=0, atol=1e-12)


def _under_ddp(rank: int) -> dict[tuple[int, bool], tuple[Tensor, dict[str, Tensor]]]:
    found = {}
    for place, unused in CASES:
        model, multi = _multi(place)
        own = {name: each[4 * rank : 4 * rank + 4] for name, each in _rows().items()}
        counts = multi.counts(own)
        dist.all_reduce(counts)
        parallel = DistributedDataParallel(model, find_unused_parameters=unused)
        total = multi(parallel(own["input_ids"]), own["labels"], counts)
        (2 * total).backward()  # DDP averages the gradients
        total = total.detach()
        dist.all_reduce(total)
        found[place, unused] = total, mtp_cases.gradients(model)
    return found


def _on_a_rank(folder: str) -> None:
    dist.init_process_group("gloo")
    found, trained = _under_ddp(dist.get_rank()), _trained(Path(folder), 4)
    if dist.get_rank() == 0:
        torch.save((found, trained), f"{folder}/found.pt")
    # DDP joins gloo's threads where it is the last to hold the group, and one that still frees a tensor would wait for
    # the interpreter, which waits for it: no DDP is left here, and a barrier lets the threads end their work.
    dist.barrier()
    dist.destroy_process_group()


class _Products(TorchDispatchMode):
    """Collects the types of matrix products, and counts those with the unembedding."""

    def __init__(self) -> None:
        super().__init__()
        self.types: set[torch.dtype] = set()
        self.wide = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, aten = func(*args, **(kwargs or {})), torch.ops.aten
        if func.overloadpacket in (aten.mm, aten.addmm, aten.addmm_, aten.bmm):
            self.types.add(found.dtype)
            self.wide += any(VOCABULARY in each.shape for each in args if isinstance(each, Tensor))
        return found


@pytest.mark.parametrize(("implementation", "of_a_head"), [("reference", 4), ("fused", 3)])
def test_products_of_a_head_with_the_unembedding(implementation: str, of_a_head: int) -> None:
    """One forward and two backward; that of all logits at once is done again, so that they are not held."""
    model, multi = _multi(0, implementation=implementation)
    with _Products() as products:
        multi(model(_rows()["input_ids"]), _rows()["labels"]).backward()
    assert products.wide == 3 + 2 * of_a_head


@pytest.mark.parametrize("implementation", ["reference", "fused"])
@pytest.mark.parametrize("place", range(5), ids=mtp_cases.KIND_NAMES)
@pytest.mark.slow
def test_in_bfloat16_heads_compute_as_the_model_does(place: int, implementation: str) -> None:
    """All products are in bfloat16, also where a trainer has autocast inside the model alone, and sums in float32.

    A rounding to 8 bits errs by at most 2^-8, in the mean square by 2^-8 / √3. A logit has some 32 behind it: one or
    two for each of five maps in two blocks and a head, and of the unembedding. That is an error of √32 · 2^-8 / √3 of
    its size, 0.013, and CE reads two logits. A gradient has as many again in the backward pass: 0.018 of its size.
    """
    model, multi = _multi(place, implementation=implementation)
    model.float()
    batch = _rows()
    outputs = model(batch["input_ids"])
    size = outputs.logits.std().item()
    parts = multi.parts(outputs, batch["labels"])
    parts.total.backward()
    gradients, expected = mtp_cases.gradients(model), means(torch.stack(parts.flat).tolist())
    for inside in (False, True):
        model.zero_grad()
        if inside:  # as accelerate
            model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
        with _Products() as products, torch.autocast("cpu", torch.bfloat16, enabled=not inside):
            parts = multi.parts(model(batch["input_ids"]), batch["labels"])
            parts.total.backward()
        assert products.types == {torch.bfloat16}
        assert parts.total.dtype == torch.float32
        for name, each in means([float(each) for each in parts.flat]).items():
            assert each == pytest.approx(expected[name], abs=2 * 0.013 * size), name
        found = mtp_cases.gradients(model)
        assert found.keys() == dict(model.named_parameters()).keys()
        for name, each in found.items():
            assert (each - gradients[name]).norm() <= 0.018 * gradients[name].norm(), name


def test_predictions(tmp_path: Path) -> None:
    """What one has left is in no evaluation, and one of rows without labels is that of the model.

    The progress of a schedule of the heads is that of the training.
    """
    batches = [mtp_cases.make_batch(4), mtp_cases.make_batch(4)]
    batches[1]["labels"] = batches[1]["input_ids"] = batches[1]["input_ids"].flip(1)
    rows, others = ([{name: each[row] for name, each in batch.items()} for row in range(4)] for batch in batches)
    model = spread(decoder("llama"))
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    multi = MultiToken(model, loss=NumberTokenLoss(vocabulary(), shift=True), head_schedule="annealed")
    trainer = _Trainer(model, arguments, number_token_loss=multi)
    trainer.state.global_step, trainer.state.max_steps = 3, 4
    first = trainer.evaluate(rows)["eval_ce"]
    trainer.predict(others)  # pyright: ignore[reportArgumentType]
    assert trainer.evaluate(rows)["eval_ce"] == first
    assert multi.progress == 0.75
    bare: Any = [{"input_ids": row["input_ids"]} for row in others]
    for each in (trainer, Trainer(model, arguments, compute_loss_func=trainer.number_token_loss)):
        found = each.predict(bare)
        torch.testing.assert_close(torch.tensor(found.predictions), model(batches[1]["input_ids"]).logits)
        assert "test_loss" not in (found.metrics or {})


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
        totals = [
            multi(model(part["input_ids"], position_ids=part["position_ids"]), part["labels"], counts).item()
            for part in parts
        ]
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(sum(totals), rel=1e-4)


if __name__ == "__main__":
    _on_a_rank(sys.argv[1])
