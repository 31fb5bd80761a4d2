"""docs/objectives.md: the blocks for other trainers run, behind the first ones of docs/losses.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
BEFORE = [code for code in BLOCK.findall((DOCS / "losses.md").read_text(encoding="utf-8")) if "SFTTrainer" not in code]
OF_TRAINER, OF_TRL, OF_A_LOOP = BLOCK.findall(
    (DOCS / "objectives.md").read_text(encoding="utf-8").partition("## In your own trainer")[2]
)


def run(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "objectives.md", "exec"), names)


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    torch.manual_seed(0)
    found: dict[str, Any] = {}
    for code in (*BEFORE[:3], OF_TRAINER):
        run(code, found)
    yield found
    found["folder"].cleanup()


def test_the_blocks_run(names: dict[str, Any]) -> None:
    line = names["trainer"].state.log_history[0]
    assert {"loss", "ce", "ntl", "ce/head3", "ntl/head3"} <= line.keys()
    before = names["model"].mtp_heads[1].state_dict()["mlp.c_fc.weight"].clone()
    run(OF_A_LOOP, names)
    assert not torch.equal(names["model"].mtp_heads[1].mlp.c_fc.weight, before)
    again = names["GPT2LMHeadModel"].from_pretrained(f"{names['folder'].name}/with_heads")
    names["MultiToken"](again, 3)
    assert torch.equal(again.mtp_heads[1].mlp.c_fc.weight, names["model"].mtp_heads[1].mlp.c_fc.weight)


@pytest.mark.slow
def test_the_block_of_trl_runs(names: dict[str, Any]) -> None:
    pytest.importorskip("trl", reason="TRL is not installed; the dev extra has it")
    run(OF_TRL.replace("bf16=False", 'bf16=False, report_to="none"'), names)
    assert names["trainer"].state.global_step == 2
    assert {"ce", "ntl/head2"} <= names["trainer"].state.log_history[0].keys()
