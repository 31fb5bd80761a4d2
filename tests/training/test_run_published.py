"""Published models: their tokenizers, and weights from a folder or from the cache of the hub."""

import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from ntl.config import build, compose, run_id
from ntl.config.folders import choices
from ntl.data.prepared import Prepared
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.tokenizers import load_tokenizer, train_tokenizer
from ntl.training import run
from ntl.training.tracking import METRICS, read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.data]
NAMES = {"t5": "t5_small", "gpt2": "gpt2_small"}
STEPS = ["trainer.max_steps=4", "trainer.save_steps=4", "trainer.logging_steps=2", "dataset.test_rows=10"]


def _weights(family: str) -> torch.nn.Module:
    import transformers

    torch.manual_seed(0)
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=50257, n_embd=16, n_layer=1, n_head=2, n_positions=128)
        )
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=32128, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
        )
    )


@pytest.fixture(scope="module", params=sorted(NAMES))
def published(
    request: pytest.FixtureRequest, data_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The name of a published model, and a folder as ``save_pretrained`` leaves it."""
    folder = tmp_path_factory.mktemp(request.param)
    _weights(request.param).save_pretrained(folder)
    load_tokenizer(data_root / "tokenizers" / request.param, kind="default").save_pretrained(folder)
    return NAMES[request.param], folder


def _overrides(published: tuple[str, Path], *more: str) -> list[str]:
    name, folder = published
    return [f"model={name}", f"model.path={folder}", *STEPS, *more]


@pytest.fixture
def config(small):
    """``small`` without its settings of the model, which are those of the decoder that stands in for GPT-2."""

    def make(*overrides: str):
        from ntl.config import compose

        base = small()
        places = [f"data_dir={base.data_dir}", f"output_dir={base.output_dir}", "tracking=none", "device=cpu"]
        data = ["dataset=noisy_numbers", "dataset.train_rows=96", "dataset.validation_rows=20", "trainer.batch_size=16"]
        return compose([*data, *places, *overrides])

    return make


@pytest.mark.parametrize("tokenizer", ["digit", "default"])
@pytest.mark.parametrize("loss", [name for name in choices("loss") if name != "mse"])
def test_from_the_file_to_the_record(loss: str, tokenizer: str, published, config) -> None:
    path = run(config(*_overrides(published, f"loss={loss}", f"tokenizer={tokenizer}")))
    record = read_record(path)
    assert record.steps == 4
    for name in ("loss", "ce", "ntl"):
        values = [line[name] for line in read_metrics(path.parent / METRICS) if name in line]
        assert len(values) == 2
        assert all(map(math.isfinite, values))
        assert all(value > 0 for value in values)
    assert math.isfinite(record.metrics["validation/ce"] or math.nan)
    assert record.metrics["test/count"] == len(read_predictions(path.parent / "predictions.jsonl")[1]) == 10


def test_training_begins_at_the_weights_of_the_folder(published, config, capsys: pytest.CaptureFixture[str]) -> None:
    """At a rate of nearly nothing every pretrained row is still what it was, whatever the tokenizer added."""
    settings = config(*_overrides(published, "trainer.lr=1e-30", "trainer.weight_decay=0"))
    checkpoint = run(settings).parent / "checkpoints" / "checkpoint-4"
    before, after = (load_file(folder / "model.safetensors") for folder in (published[1], checkpoint))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        # Zeros move by the rate, and nothing else does.
        torch.testing.assert_close(after[name][: len(tensor)], tensor, rtol=0, atol=1e-20, msg=name)
    grown = [name for name, tensor in before.items() if len(after[name]) != len(tensor)]
    assert len(grown) == (published[0] == "gpt2_small"), "GPT-2 alone has no pad token of its own"
    assert "meant for scale=paper" in capsys.readouterr().out


def test_tokenizers_are_different_runs(published, config) -> None:
    digit, default = (config(*_overrides(published, f"tokenizer={kind}")) for kind in ("digit", "default"))
    assert run_id(digit) != run_id(default)


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
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 16,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "logits_scaling": 6.0,
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
