"""Loading from a folder keeps every weight; a broken folder is reported in one line."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2LMHeadModel, PreTrainedTokenizerFast
from transformers import GPT2Config as HFGPT2Config

from ntl.config import UserError
from ntl.config.model import GPT2Config
from ntl.models import fit_vocabulary, load_pretrained
from ntl.models.pretrained import vocabulary_rows


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(HFGPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=2, n_positions=16))
    model.save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def _config(path: Path) -> GPT2Config:
    return GPT2Config(name="gpt2_small", path=str(path))


def test_growing_keeps_every_row(checkpoint: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    model = load_pretrained(_config(checkpoint), AutoModelForCausalLM)
    before = model.get_input_embeddings().weight.detach().clone()
    grown = fit_vocabulary(model, tokenizer)
    after = grown.get_input_embeddings().weight
    assert after.shape[0] == len(tokenizer) == 16
    torch.testing.assert_close(after[:11], before, rtol=0, atol=0)
    assert grown.get_output_embeddings().weight.data_ptr() == after.data_ptr()
    assert (grown.config.pad_token_id, grown.config.eos_token_id) == (0, 1)


def test_a_wider_embedding_is_not_cut(tokenizer: PreTrainedTokenizerFast) -> None:
    model = GPT2LMHeadModel(HFGPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2, n_positions=16))
    assert fit_vocabulary(model, tokenizer).get_input_embeddings().weight.shape[0] == 40


def test_rows_of_a_new_embedding(tokenizer: PreTrainedTokenizerFast) -> None:
    assert (vocabulary_rows(0, tokenizer), vocabulary_rows(40, tokenizer)) == (16, 40)


def test_broken_weights_are_one_line(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError) as caught:
        load_pretrained(_config(checkpoint), AutoModelForCausalLM)
    assert "\n" not in str(caught.value)
    assert str(checkpoint) in str(caught.value)


def test_pickled_weights_are_never_read(checkpoint: Path) -> None:
    """Unpickling can run code; safetensors cannot."""
    model = GPT2LMHeadModel.from_pretrained(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    torch.save(model.state_dict(), checkpoint / "pytorch_model.bin")
    with pytest.raises(UserError, match="safetensors") as caught:
        load_pretrained(_config(checkpoint), AutoModelForCausalLM)
    assert "\n" not in str(caught.value)


def test_missing_weights_are_named_not_made_up(checkpoint: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(checkpoint / "model.safetensors")
    weights.pop("transformer.h.0.mlp.c_fc.weight")
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks 1 weights.*mlp\.c_fc\.weight"):
        load_pretrained(_config(checkpoint), AutoModelForCausalLM)
