"""GPT-2 from a config and from a folder."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config as HFGPT2Config
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast, T5ForConditionalGeneration
from transformers import T5Config as HFT5Config

from ntl.config import UserError, compose
from ntl.config.model import GPT2Config
from ntl.models.gpt2 import build


def _tiny(**changes) -> GPT2Config:
    shape = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
    return GPT2Config(name="gpt2_tiny", **{"pretrained": False, "dropout": 0.0, **shape, **changes})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2_small", 124_439_808),
        ("gpt2_medium", 354_823_168),
        ("gpt2_large", 774_030_080),
        ("gpt2_xl", 1_557_611_200),
    ],
)
def test_published_shapes(name: str, parameters: int, tokenizer: PreTrainedTokenizerFast) -> None:
    config = compose([f"model={name}", "model.pretrained=false"]).model
    with torch.device("meta"):
        model = build(config, tokenizer=tokenizer)  # pyright: ignore[reportArgumentType]
    assert model.num_parameters() == parameters


def test_the_faster_activation_is_the_published_one(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = build(_tiny(), tokenizer=tokenizer).double().eval()
    published = GPT2LMHeadModel(HFGPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2, n_positions=16)).double()
    assert published.config.activation_function == "gelu_new"
    published.load_state_dict(model.state_dict())
    ids = torch.arange(10)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, published.eval()(ids).logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("stored", "used"), [("gelu_new", "gelu_pytorch_tanh"), ("relu", "relu")])
def test_a_checkpoint_gets_the_faster_activation_for_its_own(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, stored: str, used: str
) -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}
    stock = GPT2LMHeadModel(HFGPT2Config(**shape, activation_function=stored))
    stock.save_pretrained(tmp_path / "stock")
    model: Any = build(_tiny(pretrained=True, path=str(tmp_path / "stock")), tokenizer=tokenizer)
    assert model.config.activation_function == used
    kinds = {type(block.mlp.act).__name__ for block in model.transformer.h}
    assert kinds == {"GELUTanh" if used == "gelu_pytorch_tanh" else "ReLU"}
    ids = torch.arange(10)[None]
    with torch.no_grad():
        expected = stock.double().eval()(ids).logits
        torch.testing.assert_close(model.double().eval()(ids).logits, expected, rtol=0, atol=1e-12)


def test_the_pad_token_takes_a_new_row(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": 15, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
    stock = GPT2LMHeadModel(HFGPT2Config(**shape, activation_function="gelu_pytorch_tanh")).eval()
    stock.save_pretrained(tmp_path / "stock")
    model = build(_tiny(pretrained=True, path=str(tmp_path / "stock")), tokenizer=tokenizer).eval()
    ids = torch.arange(10)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits[..., :15], stock(ids).logits, rtol=0, atol=0)


def test_an_encoder_decoder_in_the_folder_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    shape = {"vocab_size": 16, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(HFT5Config(**shape)).save_pretrained(tmp_path / "t5")
    with pytest.raises(UserError) as caught:
        build(_tiny(pretrained=True, path=str(tmp_path / "t5")), tokenizer=tokenizer)
    assert "\n" not in str(caught.value)
