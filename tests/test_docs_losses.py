"""docs/losses.md and the blocks for other trainers of docs/objectives.md, behind its first ones: every block runs, and
the trainers in them minimise what the text says.
"""

import copy
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from ntl import losses
from ntl.losses.registry import kinds

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "losses.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
OF_TRL = [code for code in BLOCKS if "SFTTrainer" in code or "SFTConfig" in code]
OTHERS = [code for code in BLOCKS if code not in OF_TRL]
OBJECTIVES = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")
HEADS_OF_TRAINER, HEADS_OF_TRL, HEADS_OF_A_LOOP = BLOCK.findall(OBJECTIVES.partition("## In your own trainer")[2])


def run(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, str(PAGE), "exec"), names)


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Any]]:
    """What the blocks up to the loss define."""
    torch.manual_seed(0)
    found: dict[str, Any] = {}
    for code in OTHERS[:3]:
        run(code, found)
    yield found
    found["folder"].cleanup()


@pytest.fixture
def names(made: dict[str, Any]) -> dict[str, Any]:
    """The same, with a model that the test may train."""
    torch.manual_seed(0)
    return {**made, "model": copy.deepcopy(made["model"])}


def by_hand(logits: Tensor, labels: Tensor, tokenizer: Any, weight: float = 0.3) -> Tensor:
    """CE + weight · NTL-WAS of a decoder, as the paper writes it."""
    logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    ids = torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))
    numbers = torch.isin(labels, ids)
    values = (labels[numbers].unsqueeze(1) == ids).long().argmax(1)
    distance = (torch.arange(10) - values.unsqueeze(1)).abs()
    was = (logits[numbers][:, ids].softmax(-1) * distance).sum(-1).mean()
    return F.cross_entropy(logits, labels) + weight * was


def test_the_blocks_run(names: dict[str, Any]) -> None:
    assert (len(OF_TRL), len(OTHERS)) == (1, 12)
    before = {name: value.clone() for name, value in names["model"].state_dict().items()}
    for code in OTHERS[3:]:
        run(code, names)
    assert any(not torch.equal(value, before[name]) for name, value in names["model"].state_dict().items())
    model, batch = names["model"].eval(), names["batch"]
    expected = by_hand(model(**batch).logits, names["labels"], names["tokenizer"])
    hidden = names["hidden_states"](model, batch["input_ids"], batch["attention_mask"])
    found = names["loss"].linear(hidden, names["head"].weight, names["labels"], **names["settings"])
    torch.testing.assert_close(found, expected)
    largest = names["raw"].token_values.max().item()
    assert largest > 1000
    assert [f"{largest:.10g}" in str(line.message) for line in names["told"]] == [True]


def test_every_kind_is_there_with_its_function_and_options() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("\n## Kinds of loss\n")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\|`(\w+)`\|`(\w+\(.*?\))`\|", text, re.M))
    own = {}
    for name, kind in kinds().items():
        given = inspect.signature(kind.function).parameters
        options = [given[option] for option in kind.options]
        written = [each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in options]
        if kind.function.__name__ in losses.__all__:  # other tests register kinds as well
            own[name] = f"{kind.function.__name__}({', '.join(written)})".replace("'", '"')
    assert listed == own


@pytest.mark.parametrize("template", ["$A", "<pad> $A"])
def test_a_row_has_one_end_token_and_no_first_token_inside(names: dict[str, Any], template: str) -> None:
    """With tokenizers that put nothing behind a text, as published decoders have, and nothing or a token before it."""
    tokenizer = copy.deepcopy(names["tokenizer"])
    first = (tokenizer.pad_token, tokenizer.pad_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=[first])
    readme = BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert readme
    for code, start, end in ((readme[1], "examples = ", "loss = "), (OTHERS[0], "asked = ", "collate = ")):
        found = {"tokenizer": tokenizer, "rows": names["rows"]}
        run(code[code.index(start) : code.index(end)].replace("range(100)", "range(4)"), found)
        for row in found["data"]:
            ids, labels = row["input_ids"], row["labels"]
            assert [place for place, each in enumerate(ids) if each == tokenizer.eos_token_id] == [len(ids) - 1]
            assert first[1] not in ids[1:]
            assert labels[-1] == ids[-1]


def test_the_blocks_of_the_readme_train_and_read(names: dict[str, Any]) -> None:
    given = {"max_steps": 1, "report_to": "none", "save_strategy": "no", "use_cpu": True}
    names["arguments"] = names["TrainingArguments"](f"{names['folder'].name}/readme", **given)
    code, reads, regressor = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    folder = f"{names['folder'].name}/model"
    for part in (names["model"], names["tokenizer"]):
        part.save_pretrained(folder)
    own = {
        "HuggingFaceTB/SmolLM2-135M-Instruct": folder,
        'TrainingArguments("out", max_steps=300, learning_rate=5e-5)': "arguments",
        "range(100)": "range(4)",
    }
    for old, new in own.items():
        assert old in code
        code = code.replace(old, new)
    found = {"arguments": names["arguments"]}
    run(code, found)
    assert found["trainer"].state.global_step == 1
    assert {label for row in found["data"] for label in row["labels"]} > {-100, found["tokenizer"].eos_token_id}
    run(reads, found)
    settings = '"data/weights/smollm2_135m", epochs=3'
    assert settings in regressor
    rows = {"texts": [f"{n} rooms" for n in range(40)], "y": [*range(40)], "new": ["7 rooms", "12 rooms"]}
    run(regressor.replace(settings, '"tiny", max_steps=2, validation=0.25'), rows)
    assert rows["regressor"].predict(rows["new"]).shape == (2,)


def without_dropout(model: Any) -> Any:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def expected_of(trainer: Any, names: dict[str, Any], weight: float) -> float:
    """By hand, of all rows in one batch."""
    rows = trainer.train_dataset
    batch = dict(trainer.data_collator([rows[i] for i in range(len(rows))]))
    labels = batch.pop("labels")
    with torch.no_grad():
        return by_hand(trainer.model(**batch).logits, labels, names["tokenizer"], weight).item()


def step_of(size: int, steps: int) -> dict[str, Any]:
    cut = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
    return {**cut, "logging_steps": 1, "report_to": "none", "save_strategy": "no", "use_cpu": True}


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_transformers_trainer_minimises_ce_and_ntl(names: dict[str, Any], weight: float) -> None:
    rows = names["data"][:8]
    loss = names["NumberTokenLoss"](names["loss"].number_vocab, shift=True, weight=weight)
    before = names["model"].state_dict()
    logged = []
    for size, steps in ((8, 1), (4, 2)):
        model = without_dropout(names["GPT2LMHeadModel"](names["model"].config))
        model.load_state_dict(before)
        arguments = names["TrainingArguments"](f"{names['folder'].name}/out", max_steps=1, **step_of(size, steps))
        parts = {"train_dataset": rows, "compute_loss_func": loss.compute_loss_func}
        trainer = names["Trainer"](model, arguments, names["collate"], **parts)
        expected = expected_of(trainer, names, weight)
        trainer.train()
        logged.append(trainer.state.log_history[0])
        if steps == 1 or weight == 0:  # cut in two, a number label's weight depends on its micro-batch
            assert logged[-1]["loss"] == pytest.approx(expected, rel=1e-5)
    if weight == 0:
        assert logged[1]["grad_norm"] == pytest.approx(logged[0]["grad_norm"], rel=1e-4)


@pytest.mark.slow
def test_trl_minimises_ce_and_ntl(names: dict[str, Any]) -> None:
    pytest.importorskip("trl", reason="TRL is not installed; the dev extra has it")
    for code in OF_TRL:
        run(code, names)
    assert names["trainer"].state.global_step == 3
    model = without_dropout(names["GPT2LMHeadModel"](names["model"].config))
    config = names["SFTConfig"](f"{names['folder'].name}/sft", max_steps=3, bf16=False, **step_of(8, 1))
    rows = names["Dataset"].from_list(names["rows"][:8])
    parts = {"processing_class": names["tokenizer"], "number_token_loss": names["loss"]}
    trainer = names["NTLTrainer"](model, config, train_dataset=rows, eval_dataset=rows, **parts)
    expected = expected_of(trainer, names, 0.3)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(losses) == 3
    assert losses[0] == pytest.approx(expected, rel=1e-5)
    assert losses[2] < losses[0]
    config.loss_type = "dft"
    with pytest.raises(ValueError, match="there is a number_token_loss, and loss_type='dft'"):
        names["NTLTrainer"](model, config, train_dataset=rows, **parts)


def test_the_blocks_for_several_tokens_run(names: dict[str, Any]) -> None:
    run(HEADS_OF_TRAINER, names)
    line = names["trainer"].state.log_history[0]
    assert {"loss", "ce", "ntl", "ce/head3", "ntl/head3"} <= line.keys()
    before = names["model"].mtp_heads[1].state_dict()["mlp.c_fc.weight"].clone()
    run(HEADS_OF_A_LOOP, names)
    assert not torch.equal(names["model"].mtp_heads[1].mlp.c_fc.weight, before)
    again = names["GPT2LMHeadModel"].from_pretrained(f"{names['folder'].name}/with_heads")
    names["MultiToken"](again, 3)
    assert torch.equal(again.mtp_heads[1].mlp.c_fc.weight, names["model"].mtp_heads[1].mlp.c_fc.weight)


@pytest.mark.slow
def test_the_block_of_trl_for_several_tokens_runs(names: dict[str, Any]) -> None:
    pytest.importorskip("trl", reason="TRL is not installed; the dev extra has it")
    run(HEADS_OF_TRAINER, names)
    run(HEADS_OF_TRL.replace("bf16=False", 'bf16=False, report_to="none"'), names)
    assert names["trainer"].state.global_step == 2
    assert {"ce", "ntl/head2"} <= names["trainer"].state.log_history[0].keys()
