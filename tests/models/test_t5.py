"""T5 from a config and from a folder."""

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config as HFGPT2Config
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from ntl.config import UserError, compose
from ntl.config.model import T5Config
from ntl.models.t5 import build

TINY = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 1, "num_heads": 2}


def _tiny(**changes) -> T5Config:
    return T5Config(name="t5_tiny", **{"pretrained": False, "dropout": 0.0, **TINY, **changes})


@pytest.mark.parametrize(("name", "parameters"), [("t5_small", 60_506_624), ("t5_base", 222_903_552)])
def test_published_shapes(name: str, parameters: int, tokenizer: PreTrainedTokenizerFast) -> None:
    config = compose([f"model={name}", "model.pretrained=false"]).model
    with torch.device("meta"):
        model = build(config, tokenizer=tokenizer)  # pyright: ignore[reportArgumentType]
    assert model.num_parameters() == parameters


def test_from_scratch_and_reloaded_is_the_same_model(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = build(_tiny(), tokenizer=tokenizer).eval()
    model.save_pretrained(tmp_path / "saved")
    again = build(_tiny(pretrained=True, path=str(tmp_path / "saved")), tokenizer=tokenizer).eval()
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        first, second = (m(input_ids=ids, decoder_input_ids=ids).logits for m in (model, again))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert again.config.decoder_start_token_id == tokenizer.pad_token_id


def test_a_decoder_in_the_folder_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    GPT2LMHeadModel(HFGPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2)).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(UserError) as caught:
        build(_tiny(pretrained=True, path=str(tmp_path / "gpt2")), tokenizer=tokenizer)
    assert "\n" not in str(caught.value)
