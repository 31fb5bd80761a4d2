"""``scripts/benchmark_decoding.py``: its counts and answers."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ntl.config.loss import MTPConfig
from ntl.models.mtp import add_heads
from ntl.system.errors import UserError

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "benchmark_decoding.py"))["main"]


@pytest.mark.parametrize("settings", [{"variant": "causal"}, {"kind": "sequential"}])
@pytest.mark.slow
def test_decoding_with_drafts(settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts and answers of a small model with random heads; the times are those of one machine."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 8}
    model = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2, eos_token_id=1, pad_token_id=0)).double()
    add_heads(model, MTPConfig(heads=3, keep_depth=True, **settings), say=lambda line: None)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    words = {name: index for index, name in enumerate(["<pad>", "</s>", *"abcdef"])}
    backend = Tokenizer(WordLevel(words, unk_token="a"))
    backend.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", pad_token="<pad>").save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    (asked := tmp_path / "asked.jsonl").write_text(
        "".join(f'{{"question": "{each}"}}\n' for each in ("a b c", "d", "e f"))
    )
    command = [str(tmp_path), "--questions", str(asked), "--heads", "1", "3", "--batches", "1", "2"]
    command += ["--tokens", "9", "--rounds", "2", "--dtype", "float64", "--json", "--out", str(tmp_path / "drafts.csv")]
    assert main([*command, "--variant", settings.get("variant", "independent")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["batch"], row["heads"]) for row in rows] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for row in rows:
        assert row["answers"] == row["same_answers"] == 3
        assert (row["tokens_per_forward"] == 1.0) == (row["heads"] == 1)
    assert rows[0]["accepted_head2"] is None
    assert rows[1]["accepted_head2"] >= rows[1]["accepted_head3"] >= 0
    with pytest.raises(UserError, match="--heads 4: choose from 1 to the number of heads, 3"):
        main([*command, "--heads", "4"])


def test_decoding_without_heads(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=8)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="no heads are stored there"):
        main([str(tmp_path)])
