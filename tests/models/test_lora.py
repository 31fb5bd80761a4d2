"""Adapters: frozen weights do not change, the merged model is equivalent, and trained weights can be restored."""

import builtins
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2LMHeadModel, PreTrainedTokenizerFast

from ntl.config import UserError, build, compose
from ntl.config.model import LoraConfig
from ntl.models.lora import add_lora, load_trained, merged_state, trained_state

IDS = torch.tensor([[3, 5, 7, 4]])
NAMES = ["gpt2_tiny", "granite_tiny", "t5_tiny", "t5_tiny_regression"]


def made(name: str, tokenizer: PreTrainedTokenizerFast, **lora: Any) -> Any:
    torch.manual_seed(0)
    config = compose([f"model={name}"]).model
    return add_lora(build(config, tokenizer=tokenizer), LoraConfig(rank=2, full=config.lora.full, **lora))


def run(model: Any) -> torch.Tensor:
    inputs = {"input_ids": torch.cat([IDS, torch.tensor([[1]])], dim=1)}
    if model.config.is_encoder_decoder and model.can_generate():
        inputs["decoder_input_ids"] = IDS
    return model(**inputs).logits


def train(model: Any) -> None:
    """Train three steps, so that every adapter, which begins as zero, has changed."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        run(model.train()).square().mean().backward()
        optimizer.step()
    model.eval()


@pytest.mark.parametrize("name", NAMES)
def test_adapters_alone_are_trained(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    model = made(name, tokenizer)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    train(model)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert changed <= set(trained_state(model))
    assert all("lora_" in key or key.startswith("classification_head.") for key in trained_state(model))
    trained, every = (
        sum(weight.numel() for weight in weights) for weights in (trained_state(model).values(), model.parameters())
    )
    assert trained / every < 0.25


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_the_merged_model_computes_the_same(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    model = made(name, tokenizer, alpha=8.0)
    for weight in trained_state(model).values():  # an adapter begins as 0, and a few steps hardly move it
        weight.normal_(std=0.3)
    model.eval()
    torch.manual_seed(0)
    plain = build(compose([f"model={name}"]).model, tokenizer=tokenizer).eval()
    untrained = run(plain)
    merged = merged_state(model)
    assert set(merged) == set(plain.state_dict())
    plain.load_state_dict(merged)
    torch.testing.assert_close(run(plain), run(model), rtol=1e-4, atol=1e-5)
    assert float((run(plain) - untrained).abs().max()) > 0.01


def test_what_was_trained_can_be_put_back(tokenizer: PreTrainedTokenizerFast) -> None:
    model, fresh = made("gpt2_tiny", tokenizer), made("gpt2_tiny", tokenizer)
    train(model)
    load_trained(fresh, trained_state(model))
    torch.testing.assert_close(run(fresh.eval()), run(model), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="differs"):
        load_trained(made("granite_tiny", tokenizer), trained_state(model))


def test_without_peft_one_line(tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without_peft(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "peft":
            raise ModuleNotFoundError(name=name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_peft)
    with pytest.raises(UserError, match=r"^peft is not installed; run pip install -e '\.\[lora\]' in the clone"):
        made("gpt2_tiny", tokenizer)


def test_an_adapter_needs_learned_weights() -> None:
    with pytest.raises(UserError, match=r"model.lora.rank=4 model.pretrained=false: an adapter changes weights"):
        compose(["model.lora.rank=4"])


def test_a_saved_model_with_adapters_is_a_plain_one(tokenizer: PreTrainedTokenizerFast, tmp_path) -> None:
    model = made("gpt2_tiny", tokenizer)
    train(model)
    model.save_pretrained(tmp_path, state_dict=merged_state(model))
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(plain) is GPT2LMHeadModel
    torch.testing.assert_close(run(plain), run(model), rtol=1e-4, atol=1e-5)
