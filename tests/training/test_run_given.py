"""Given weights and their tokenizer: a run changes nothing unasked, and its checkpoints have all of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from given import save
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from ntl.config import compose
from ntl.config.loss import MTPConfig
from ntl.evaluation import read_predictions
from ntl.models.mtp import add_heads
from ntl.system.errors import UserError
from ntl.training.parts import RunParts
from ntl.training.train import train

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
SHAPE |= {"intermediate_size": 24, "max_position_embeddings": 128}
QWEN = {"layer_types": ["full_attention"] * 2, "head_dim": 8}
DATA = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=8"]
STEPS = ["trainer.max_steps=3", "trainer.batch_size=8", "trainer.save_steps=3", "trainer.warmup_steps=1"]
STEPS += ["trainer.eval_steps=3", "trainer.eval_rows=8", "decoding.max_new_tokens=6", "tracking=none", "device=cpu"]
WRITTEN = ("dtype", "transformers_version", "architectures")


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., Path]:
    """``given(architecture, tokenizer, **settings)``: a folder as a model is published in, with a generation config."""

    def make(architecture: str, tokenizer: str, **settings: Any) -> Path:
        folder = save(tokenizer, tmp_path / "given")
        reader = AutoTokenizer.from_pretrained(folder)
        ends = reader.convert_tokens_to_ids(["<|end|>", "<|other|>"])
        ids = {"bos_token_id": 0, "eos_token_id": ends, "pad_token_id": reader.pad_token_id}
        torch.manual_seed(0)
        config = AutoConfig.for_model(architecture, vocab_size=len(reader) + 3, **{**SHAPE, **ids, **settings})
        model: Any = AutoModelForCausalLM.from_config(config)
        model.generation_config = GenerationConfig(**{**ids, "do_sample": True, "temperature": 0.6, "max_length": 99})
        model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Any]:
    places = [f"output_dir={tmp_path / 'outputs'}", f"data_dir={tmp_path / 'data'}"]
    return lambda *words: compose([*DATA, *STEPS, *places, *words])


def contents(folder: Path, name: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads((folder / name).read_bytes()).items() if key not in WRITTEN}


@pytest.mark.parametrize("name", ["smollm2", "llama3"])
def test_losses_of_places_are_for_given_tokenizers_that_write_digits_alone(
    name: str, given: Callable[..., Path], command: Callable[..., Any]
) -> None:
    config = command("model=hf", f"model.path={given('llama', name)}", "loss=ntil")
    parts = RunParts(config, say=lambda line: None)
    if name == "smollm2":
        assert parts.objective()
    else:
        with pytest.raises(UserError, match=r"^loss=ntil: a loss of places .*take tokenizer='digit'"):
            parts.objective()


@pytest.mark.parametrize("name", ["smollm2", "llama3"])
@pytest.mark.slow
def test_the_checkpoint_is_the_given_folder_with_other_weights(
    name: str, given: Callable[..., Path], command: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given("granite", name, attention_dropout=0.05)
    record = train(command("model=granite_3_2_2b", f"model.path={folder}", "tokenizer=digit", "loss=ntl_was"))
    checkpoint = record.parent / "checkpoints" / "checkpoint-3"
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        assert contents(checkpoint, file) == contents(folder, file)
    assert (checkpoint / "chat_template.jinja").read_bytes() == (folder / "chat_template.jinja").read_bytes()
    printed = capsys.readouterr()
    assert ("writes several digits as one token" in printed.out + printed.err) == (name == "llama3")
    assert "the model's own generation config has do_sample=True, temperature=0.6, which is not used." in printed.out
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(checkpoint).eval(),
        AutoTokenizer.from_pretrained(checkpoint),
    )
    before = AutoModelForCausalLM.from_pretrained(folder).get_input_embeddings().weight
    assert model.get_input_embeddings().weight.shape == before.shape
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(folder).chat_template
    _, rows = read_predictions(record.parent / "predictions.jsonl")
    questions = RunParts(command("model=granite_3_2_2b"), say=[].append).prepared.rows("test")
    for row, example in zip(rows, questions, strict=True):
        inputs = tokenizer(example["question"], return_tensors="pt")
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        assert tokenizer.decode(output, skip_special_tokens=True).strip() == row["prediction"]


def with_modules(folder: Path) -> dict[str, torch.Tensor]:
    """Give the model in a folder two modules for multi-token prediction; return their weights."""
    model: Any = add_heads(AutoModelForCausalLM.from_pretrained(folder), MTPConfig(kind="sequential", heads=3))
    model.save_pretrained(folder)
    return {name: value.clone() for name, value in model.state_dict().items() if name.startswith("mtp.")}


@pytest.mark.slow
def test_modules_for_multi_token_prediction_are_carried(
    given: Callable[..., Path], command: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given("qwen3_5_text", "smollm2", **QWEN)
    before = with_modules(folder)
    words = ["model=qwen3_5_0_8b", f"model.path={folder}", "tokenizer=digit", "loss=ce"]
    checkpoint = train(command(*words)).parent / "checkpoints" / "checkpoint-3"
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("objective=mtp objective.kind=sequential trains them") == 1
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    after = load_file(checkpoint / "model.safetensors")
    assert {name: value for name, value in after.items() if name.startswith("mtp.")}.keys() == before.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    model._is_stateful = False  # transformers refuses Qwen3.5 otherwise, even without any stateful layer
    prompt = torch.tensor([[5, 6, 7]])
    tokens = [model.generate(prompt, max_new_tokens=8, do_sample=False, use_mtp=use).tolist() for use in (False, True)]
    assert tokens[0] == tokens[1]
