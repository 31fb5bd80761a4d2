"""Models from a config and from a folder: sizes, weights, dropout, and one line for what does not fit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    T5ForSequenceClassification,
)
from transformers import GPT2Config as HFGPT2Config

from ntl.config import UserError
from ntl.models import checked_lm_head, embedding_rows

# Name -> (its language model, its class, the weights that it adds).
HEADS = {
    "t5_tiny_regression": ("t5_tiny", T5ForSequenceClassification, "classification_head."),
    "gpt2_tiny_regression": ("gpt2_tiny", GPT2ForSequenceClassification, "score."),
}
STORED = {
    "granite_moe_tiny": AutoModelForCausalLM,
    "t5_tiny": AutoModelForSeq2SeqLM,
    **dict.fromkeys(HEADS, AutoModelForSequenceClassification),
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("rt", 222_903_552 + (32_420 - 32_128) * 768),  # a T5-base with more rows
        ("xval", 213_440_257),
        pytest.param("gpt2_xl", 1_557_611_200, marks=pytest.mark.slow),
        pytest.param("granite_3_1_moe_1b", 1_334_628_352, marks=pytest.mark.slow),
    ],
)
def test_published_shapes_without_memory(name: str, parameters: int, made) -> None:
    with torch.device("meta"):
        model = made(name, pretrained=False, dropout=0.0)
    assert model.num_parameters() == parameters
    assert {tensor.device.type for tensor in model.parameters()} == {"meta"}
    assert {tensor.device.type for tensor in model.buffers()} <= {"meta"}


@pytest.mark.parametrize("name", ["gpt2_tiny", "granite_moe_tiny", "t5_tiny", "rt_tiny"])
def test_rows_and_special_tokens_of_a_new_model(name: str, made) -> None:
    model = made(name, vocab_size=0)
    # rt has the tokens _d_e_ behind those of the tokenizer.
    assert embedding_rows(model) == (16 + 320 if name == "rt_tiny" else 16)
    assert (model.config.pad_token_id, model.config.eos_token_id) == (0, 1)
    checked_lm_head(model)
    assert embedding_rows(made(name, vocab_size=400)) == 400


@torch.no_grad()
@pytest.mark.parametrize("name", STORED)
def test_saved_and_loaded_it_is_the_same_model(name: str, made, logits, tmp_path: Path) -> None:
    """By its config, and by transformers alone."""
    model = made(name)
    model.save_pretrained(tmp_path)
    for again in (
        made(name if name in HEADS else "hf", folder=tmp_path),
        STORED[name].from_pretrained(tmp_path).eval(),
    ):
        torch.testing.assert_close(dict(again.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
        torch.testing.assert_close(logits(again), logits(model), rtol=1e-5 if name in HEADS else 0, atol=0)
        for setting in ("logits_scaling", "decoder_start_token_id"):
            assert getattr(again.config, setting, None) == getattr(model.config, setting, None)


@torch.no_grad()
@pytest.mark.parametrize("name", HEADS)
def test_a_regression_head_on_the_body_of_a_language_model(name: str, made, logits, tmp_path: Path) -> None:
    """It has one output, which padding does not change."""
    body, kind, head = HEADS[name]
    language_model = made(body)
    language_model.save_pretrained(tmp_path)
    model = made(name, folder=tmp_path)
    assert isinstance(model, kind)
    assert not model.can_generate()
    together = logits(model)
    assert together.shape == (2, 1)
    torch.testing.assert_close(together[1:], logits(model, slice(1, 2), width=2), rtol=1e-5, atol=1e-6)
    state = model.state_dict()
    shared = {key: tensor for key, tensor in language_model.base_model.state_dict().items() if "lm_head" not in key}
    assert len(shared) > 10
    for weight, tensor in shared.items():
        torch.testing.assert_close(state[f"transformer.{weight}"], tensor, rtol=0, atol=0)
    assert any(weight.startswith(head) for weight in state)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    shape = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}
    GPT2LMHeadModel(HFGPT2Config(vocab_size=11, **shape)).save_pretrained(tmp_path / "small")
    return tmp_path / "small"


@torch.no_grad()
def test_growing_keeps_every_row(checkpoint: Path, made, tokenizer: PreTrainedTokenizerFast) -> None:
    stock, grown = GPT2LMHeadModel.from_pretrained(checkpoint).eval(), made("gpt2_tiny", folder=checkpoint)
    rows = grown.get_input_embeddings().weight
    assert rows.shape[0] == len(tokenizer) == 16
    torch.testing.assert_close(rows[:11], stock.get_input_embeddings().weight, rtol=0, atol=0)
    assert grown.get_output_embeddings().weight.data_ptr() == rows.data_ptr()
    assert (grown.config.pad_token_id, grown.config.eos_token_id) == (0, 1)
    ids = torch.arange(10)[None]
    torch.testing.assert_close(grown.transformer(ids)[0], stock.transformer(ids)[0], rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"tie_word_embeddings": False}, None])
def test_growing_keeps_a_head_of_its_own(settings: dict[str, bool] | None, made, logits, tmp_path: Path) -> None:
    """Though the config says that it is tied, as that of every T5 does, also of version 1.1, which has such a head."""
    name, auto = ("gpt2_tiny", AutoModelForCausalLM) if settings is None else ("t5_tiny", AutoModelForSeq2SeqLM)
    shape = {"decoder_start_token_id": 0, "num_layers": 1} if settings is not None else {"n_layer": 1, "n_embd": 48}
    torch.manual_seed(0)
    stock = auto.from_config(AutoConfig.for_model(name[:-5], vocab_size=11, **shape, **settings or {})).eval()
    stock.lm_head.weight = torch.nn.Parameter(torch.randn_like(stock.lm_head.weight))
    stock.save_pretrained(tmp_path)
    grown = made(name, folder=tmp_path)
    assert embedding_rows(grown) == 16
    checked_lm_head(grown)
    grown.save_pretrained(tmp_path / "grown")
    for model in (grown, auto.from_pretrained(tmp_path / "grown").eval()):
        assert model.config.tie_word_embeddings
        torch.testing.assert_close(logits(model)[..., :11], logits(stock), rtol=1e-5, atol=1e-5)


def test_missing_pickled_or_broken_weights_are_one_line(checkpoint: Path, made) -> None:
    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message) as caught:
            made("gpt2_tiny", folder=checkpoint)
        assert "\n" not in str(caught.value)
        assert str(checkpoint) in str(caught.value)

    weights = checkpoint / "model.safetensors"
    tensors = load_file(weights)
    tensors.pop("transformer.h.0.mlp.c_fc.weight")
    save_file(tensors, weights, metadata={"format": "pt"})
    refused(r"lacks 1 weights.*mlp\.c_fc\.weight")
    weights.write_bytes(b"nonsense")
    refused("Give another folder")
    weights.unlink()
    torch.save(tensors, checkpoint / "pytorch_model.bin")  # unpickling can run code; safetensors cannot
    refused("safetensors")


# ---- decoders of transformers from a YAML file


BATCH = {"input_ids": torch.tensor([[3, 5, 13, 7]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["granite_moe_tiny", "llama_tiny"])
def test_dropout_acts(name: str, made, tmp_path: Path) -> None:
    """Two passes in training mode differ, whether the model is built from scratch or loaded from a folder."""
    made(name).save_pretrained(tmp_path)
    for folder in ("", tmp_path):
        of = "hf" if folder else name
        model, without = made(of, "model.dropout=0.25", folder=folder).train(), made(of, folder=folder).train()
        assert not torch.equal(model(**BATCH).logits, model(**BATCH).logits)
        torch.testing.assert_close(without(**BATCH).logits, without(**BATCH).logits, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "granit"}, r"model\.architecture=granit: "),
        ({"settings": {"hidden_size": "three"}}, r"model\.architecture=llama: "),
        (
            {"settings": {"hiden_size": 32}},
            r"model\.settings\.hiden_size: there is no such setting\. Did you mean 'hidden_size'\?",
        ),
        ({"settings": {"attn_implementation": "fast"}}, r"model\.architecture=llama: .*attn_implementation.*fast"),
        (
            {"architecture": "mamba", "dropout": 0.1},
            r"^model\.dropout=0\.1: mamba models have no dropout; set model\.dropout=0\.$",
        ),
    ],
)
def test_one_line_for_a_mistake(changes: dict[str, Any], message: str, made) -> None:
    with pytest.raises(UserError, match=message) as caught:
        made("llama_tiny", **changes)
    assert "\n" not in str(caught.value)
