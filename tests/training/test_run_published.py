"""Published models: their weights and tokenizers from the cache of the hub."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from ntl.config import build, compose
from ntl.data.prepared import Prepared
from ntl.evaluation import read_predictions
from ntl.tokenizers import train_tokenizer

MAX_NEW_TOKENS = 6
ROOT = Path(__file__).resolve().parents[2]
# Name -> (hub id, an architecture small enough, what reads it).
PUBLISHED: dict[str, tuple[str, str, dict[str, Any], Any]] = {
    "gpt2_small": (
        "openai-community/gpt2",
        "gpt2",
        {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 128},
        AutoModelForCausalLM,
    ),
    "t5_small": (
        "google-t5/t5-small",
        "t5",
        {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0},
        AutoModelForSeq2SeqLM,
    ),
    "granite_3_1_moe_1b": (
        "ibm-granite/granite-3.1-1b-a400m-base",
        "granitemoe",
        {
            **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1},
            **{"intermediate_size": 16, "num_local_experts": 2, "num_experts_per_tok": 1, "logits_scaling": 6.0},
        },
        AutoModelForCausalLM,
    ),
}


def put_into_cache(cache: Path, hub_id: str, files: Path) -> None:
    """As a download leaves it: blobs by their hash, a snapshot of links to them, and the branch that names it."""
    home = cache / f"models--{hub_id.replace('/', '--')}"
    commit = "0" * 40
    snapshot = home / "snapshots" / commit
    for folder in (home / "blobs", home / "refs", snapshot):
        folder.mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    for file in files.iterdir():
        blob = home / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_from_the_cache_to_a_checkpoint_that_anyone_can_load(name: str, tmp_path: Path) -> None:
    hub_id, architecture, settings, auto = PUBLISHED[name]
    files = tmp_path / "files"
    tokenizer = train_tokenizer([f"x = {number}" for number in range(100)], files, kind="default")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(architecture, vocab_size=len(tokenizer) + 5, **settings)
    auto.from_config(config).save_pretrained(files)
    assert not list(files.glob("*.bin"))
    put_into_cache(tmp_path / "cache", hub_id, files)

    data = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=8"]
    steps = ["trainer.max_steps=3", "trainer.batch_size=8", "trainer.save_steps=3", "tracking=none", "device=cpu"]
    steps.append(f"decoding.max_new_tokens={MAX_NEW_TOKENS}")
    places = [f"output_dir={tmp_path / 'outputs'}", f"data_dir={tmp_path / 'data'}"]
    cache = {"HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "train.py", f"model={name}", *data, *steps, *places],
        cwd=ROOT,
        env=os.environ | cache,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    (record,) = (tmp_path / "outputs").glob("*/record.json")
    checkpoint = record.parent / "checkpoints" / "checkpoint-3"
    model, reader = auto.from_pretrained(checkpoint).eval(), AutoTokenizer.from_pretrained(checkpoint)
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer) + 5
    _, rows = read_predictions(record.parent / "predictions.jsonl")
    questions = Prepared(build(compose(data).dataset), tmp_path / "data").rows("test")
    for row, example in zip(rows, questions, strict=True):
        assert plain_answer(model, reader, example["question"]) == row["prediction"]


@torch.no_grad()
def plain_answer(model: Any, tokenizer: Any, question: str) -> str:
    """Greedy decoding as anybody would write it."""
    ids = tokenizer(question, add_special_tokens=False)["input_ids"]
    seq2seq = model.config.is_encoder_decoder
    prompt = torch.tensor([[*ids, tokenizer.eos_token_id] if seq2seq else ids])
    output = model.generate(prompt, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)[0]
    return tokenizer.decode(output if seq2seq else output[len(ids) :], skip_special_tokens=True).strip()
