"""``scripts/benchmark_decoding.py``: its counts and answers."""

import json
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ntl.benchmarks.decoding import STATISTICS
from ntl.config import compose
from ntl.config.loss import MTPConfig
from ntl.models.mtp import add_heads
from ntl.system.errors import UserError
from ntl.training.train import train

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


def test_searches_against_a_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run of a few steps: the reference has no error, and quantiles of as wide a search have hardly any."""
    settings = ["dataset=noisy_numbers", "dataset.train_rows=96", "dataset.validation_rows=8", "dataset.test_rows=8"]
    settings += ["model.n_embd=16", "model.n_layer=1", "trainer.max_steps=40", "trainer.batch_size=16"]
    settings += ["trainer.lr=0.01", "trainer.save_steps=40", "trainer.warmup_steps=2", "tracking=none"]
    places = [f"data_dir={tmp_path}", f"output_dir={tmp_path}", "device=cpu"]
    run = train(compose([*settings, *places])).parent
    capsys.readouterr()
    file = tmp_path / "references" / "noisy.jsonl"
    command = [str(run), "--search", "--reference-file", str(file), "--count", "3", "--batches", "1", "2"]
    command += ["--rounds", "2", "--reference", "1000"]
    assert main([*command, "--num-beams", "30", "--json", "--out", str(tmp_path / "search.csv")]) == 0
    out, told = capsys.readouterr()
    rows = json.loads(out)
    assert [line.partition(":")[0] for line in told.splitlines()] == [f"reference {n}/3" for n in (1, 2, 3)]
    assert (tmp_path / "search.csv").read_text().splitlines()[1].split(",") == [*rows[0]]
    assert [(row["batch"], row["search"]) for row in rows] == [
        (batch, search) for batch in (1, 2) for search in ("old", "new", "reference")
    ]
    for old, new, reference in (rows[:3], rows[3:]):
        assert (new["task"], new["answers"], new["num_beams"], new["reference"]) == ("noisy_numbers", 3, 30, 1000)
        assert old["covered"] == old["represented"] <= reference["covered"]
        assert new["covered"] <= new["represented"] <= 1
        assert all(math.isfinite(new[each]) and new[each] <= new[f"{each}_worst"] for each in STATISTICS)
        assert not any(reference[name] for each in STATISTICS for name in (each, f"{each}_worst"))
    # A reference that was killed after its first question goes on from there.
    first, *_ = lines = file.read_text().splitlines()
    file.write_text(f"{first}\n")
    assert main([*command, "--num-beams", "30", "--json"]) == 0
    out, told = capsys.readouterr()
    measured = ("seconds", "ratio", "ratio_low", "ratio_high")
    kept = [[{key: row[key] for key in row.keys() - {*measured}} for row in each] for each in (rows, json.loads(out))]
    assert kept[0] == kept[1]
    assert told.count("reference ") == 2
    assert file.read_text().splitlines()[0] == first
    assert len(file.read_text().splitlines()) == len(lines) == 3
    assert main([*command[:-1], "100", "--num-beams", "100", "--batches", "2", "--json"]) == 0
    alike = [row for row in json.loads(capsys.readouterr().out) if row["search"] == "new"]
    assert all(row[f"{each}_worst"] < 1 for row in alike for each in ("q25", "median", "q75"))
    assert len(file.read_text().splitlines()) == 6  # that of 100 prefixes is another one
    file.write_text("{")
    with pytest.raises(UserError, match=r"noisy\.jsonl: not the lines of a reference"):
        main(command)
    with pytest.raises(UserError, match="of 0 questions, none has two possible answers"):
        main([*command, "--count", "0", "--reference-file", str(tmp_path / "none")])
    with pytest.raises(UserError, match="--heads: not with --search"):
        main([*command, "--heads", "3"])
    with pytest.raises(UserError, match="--num-beams: only with --search"):
        main([str(run), "--num-beams", "30"])
