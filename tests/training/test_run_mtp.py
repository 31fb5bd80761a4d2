"""A published Qwen3.5 with its own module for multi-token prediction: loaded, trained on, and decoded without ntl."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, Qwen3_5ForConditionalGeneration

from ntl.config import Config, compose
from ntl.training import run

TEXT = {
    **{"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48},
    **{"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2, "vocab_size": 128},
    **{"mtp_num_hidden_layers": 1, "tie_word_embeddings": True},
}
VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
# The published names of a module's own parts, with ours; those of its block differ in the prefix alone.
PARTS = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "post_norm"}
GENERATE = """
import json, sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
model._is_stateful = False  # transformers refuses Qwen3.5 otherwise, even without any stateful layer
for prompt in ([5, 6, 7], [9, 8, 7, 6]):
    options = {"max_new_tokens": 16, "min_new_tokens": 16, "do_sample": False}
    ids = [model.generate(torch.tensor([prompt]), use_mtp=use, **options)[0].tolist() for use in (False, True)]
    print(json.dumps(ids))
assert not any(name.split(".")[0] == "ntl" for name in sys.modules)
"""


@pytest.fixture
def published(parts: Callable[..., Any], tmp_path: Path) -> Path:
    """A folder with the names of a published model's files and weights, vision and all, made small."""
    folder = tmp_path / "published"
    torch.manual_seed(0)
    config = AutoConfig.for_model("qwen3_5", text_config=TEXT, vision_config=VISION, tie_word_embeddings=True)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    blocks = {key: value for key, value in state.items() if key.startswith("model.language_model.layers.1.")}
    state |= {f"mtp.layers.0.{key.split('.', 4)[4]}": value.clone() for key, value in blocks.items()}
    state |= {f"mtp.{name}.weight": torch.zeros(32) for name in PARTS if name != "fc"}
    state["mtp.fc.weight"] = torch.randn(32, 64) * 0.3
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    parts().tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def config(published: Path, small: Callable[..., Config]) -> Config:
    places = [f"data_dir={small().data_dir}", f"output_dir={small().output_dir}", "tracking=none", "device=cpu"]
    data = ["dataset=noisy_numbers", "dataset.train_rows=96", "dataset.validation_rows=20", "dataset.test_rows=10"]
    model = ["model=qwen3_5_0_8b", f"model.path={published}", "objective=mtp", "objective.kind=sequential"]
    steps = ["trainer.max_steps=2", "trainer.batch_size=8", "trainer.lr=1e-4", "trainer.warmup_steps=0"]
    return compose([*data, *places, *model, *steps, "trainer.max_input_length=64"])


@pytest.mark.slow
def test_a_published_module_is_trained_on_and_decodes_without_ntl(published: Path, config: Config) -> None:
    record = run(config)
    assert json.loads(record.read_text())["metrics"]["validation/ce/head2"] > 0
    before = load_file(published / "model.safetensors")
    (newest,) = (record.parent / "checkpoints").glob("checkpoint-2")
    after = load_file(newest / "model.safetensors")
    pairs = {f"mtp.layers.0.{ours}.weight": f"mtp.{theirs}.weight" for theirs, ours in PARTS.items()}
    for name in before:
        if name.startswith("mtp.layers.0."):
            pairs[name.replace("mtp.layers.0.", "mtp.layers.0.mtp_block.")] = name
    found = {name: value for name, value in after.items() if name.startswith("mtp.")}
    assert found.keys() == pairs.keys()
    for ours, theirs in pairs.items():
        # AdamW moves a weight by at most the rate a step, beside its decay.
        torch.testing.assert_close(found[ours], before[theirs], rtol=1e-5, atol=2.5e-4)
        assert not torch.equal(found[ours], before[theirs])
    done = subprocess.run(
        [sys.executable, "-c", GENERATE, str(newest)], capture_output=True, text=True, timeout=300, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    assert len(lines) == 2
    for greedy, drafted in lines:
        assert drafted == greedy
        assert len(greedy) >= 19
