"""What a checkpoint holds of a model's weights, with adapters and without."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GraniteMoeConfig, GraniteMoeForCausalLM

from ntl.config.model import LoraConfig
from ntl.models.lora import add_lora, trained_state
from ntl.training.weights import has_adapters, load_model, save_model

SHAPE = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
EXPERTS = {"num_key_value_heads": 2, "intermediate_size": 16, "num_local_experts": 2, "num_experts_per_tok": 1}


def gpt2(seed: int) -> Any:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=16, n_layer=1, n_head=2)).eval()


def experts(seed: int) -> Any:
    torch.manual_seed(seed)
    return GraniteMoeForCausalLM(GraniteMoeConfig(**SHAPE, **EXPERTS)).eval()


def same(one: Any, other: Any) -> bool:
    weights = other.state_dict()
    return all(torch.equal(weight, weights[name]) for name, weight in one.state_dict().items())


@pytest.mark.parametrize("make", [gpt2, experts])
def test_put_back_bit_for_bit(make: Any, tmp_path: Path) -> None:
    model, other = make(1), make(2)
    save_model(model, tmp_path)
    assert not same(other, model)
    load_model(other, tmp_path)
    assert same(other, model)
    assert same(AutoModelForCausalLM.from_pretrained(tmp_path), model)


def test_weights_given_whole(tmp_path: Path) -> None:
    model, other = gpt2(1), gpt2(2)
    save_model(other, tmp_path, model.state_dict())
    load_model(other, tmp_path)
    assert same(other, model)


def test_adapters(tmp_path: Path) -> None:
    models = [add_lora(gpt2(seed), LoraConfig(rank=2)) for seed in (1, 1)]
    for weight in trained_state(models[0]).values():
        weight.normal_()
    assert has_adapters(models[0])
    assert not has_adapters(gpt2(1))
    save_model(models[0], tmp_path)
    load_model(models[1], tmp_path)
    assert same(models[1], models[0])
    ids = torch.tensor([[1, 2, 3]])
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(plain(ids).logits, models[0].eval()(ids).logits, rtol=1e-4, atol=1e-5)


def test_another_model(tmp_path: Path) -> None:
    save_model(gpt2(1), tmp_path)
    with pytest.raises(RuntimeError):
        load_model(experts(1), tmp_path)
    with pytest.raises(RuntimeError, match="no adapters"):
        load_model(add_lora(gpt2(1), LoraConfig(rank=2)), tmp_path)
