"""Models from a config and from a folder: sizes, weights, dropout, what does not fit; their heads, and adapters."""

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
    BartConfig,
    BartForConditionalGeneration,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    T5ForSequenceClassification,
)
from transformers import GPT2Config as HFGPT2Config

from ntl.config import UserError, compose
from ntl.config.model import LoraConfig
from ntl.models import checked_lm_head, embedding_rows, hidden_states, lm_head
from ntl.models.lora import add_lora, merged_state, trained_state

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


# What the line names -> the changes that it is of.
MISTAKES: dict[str, dict[str, Any]] = {
    r"model\.architecture=granit: ": {"architecture": "granit"},
    r"model\.architecture=llama: ": {"settings": {"hidden_size": "three"}},
    r"model\.settings\.hiden_size: .* 'hidden_size'\?": {"settings": {"hiden_size": 32}},
    r"model\.architecture=llama: .*attn_implementation.*fast": {"settings": {"attn_implementation": "fast"}},
    r"^model\.dropout=0\.1: mamba": {"architecture": "mamba", "dropout": 0.1},
    r"^model\.n_embd=64: must be a multiple of model\.n_head=3\.$": {"n_embd": 64, "n_head": 3},
}


@pytest.mark.parametrize("named", MISTAKES)
def test_one_line_for_a_mistake(named: str, made) -> None:
    with pytest.raises(UserError, match=named) as caught:
        made("gpt2_tiny" if "n_embd" in MISTAKES[named] else "llama_tiny", **MISTAKES[named])
    assert "\n" not in str(caught.value)


# ---- hidden states and heads give the logits of the model's own forward pass, for all the ways in which heads differ


ROWS = 24
DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2},
    "granitemoe": {"hidden_size": 16, "logits_scaling": 6.0, "num_local_experts": 2, "num_experts_per_tok": 1},
    "gemma2": {"hidden_size": 16, "head_dim": 8, "final_logit_softcapping": 0.5},
    "cohere": {"hidden_size": 16, "logit_scale": 0.0625},
    "recurrent_gemma": {"hidden_size": 16, "logits_soft_cap": 0.5, "block_types": ["attention"]},
    "phi": {"hidden_size": 16},  # a head with a bias
}
SHAPE = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 16}
IDS = torch.tensor([[3, 5, 7, 1], [2, 9, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def decoder(model_type: str) -> Any:
    torch.manual_seed(0)
    settings = DECODERS.get(model_type, {"hidden_size": 16}) | ({} if model_type == "gpt2" else SHAPE)
    config = AutoConfig.for_model(model_type, vocab_size=ROWS, pad_token_id=0, **settings)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():  # a bias of 0 would hide an error
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize("model_type", DECODERS)
def test_a_decoder(model_type: str) -> None:
    assert assert_same_logits(decoder(model_type)).shape == (2, 4, ROWS)


def t5(**settings: Any) -> Any:
    torch.manual_seed(0)
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(vocab_size=ROWS, **shape, **settings)).eval()


def assert_same_logits(model: Any, rtol: float = 1e-5, atol: float = 1e-5, **decoder: torch.Tensor) -> torch.Tensor:
    """Those from hidden states and head are those of the model's own forward pass, which are returned."""
    expected = model(input_ids=IDS, attention_mask=MASK, **decoder).logits
    hidden = hidden_states(model, IDS, MASK, **decoder)
    assert hidden.shape == (*expected.shape[:2], 16)
    torch.testing.assert_close(checked_lm_head(model).logits(hidden), expected, rtol=rtol, atol=atol)
    return expected


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
def test_t5_scales_its_decoder_where_the_embeddings_are_tied(tied: bool) -> None:
    model = t5(tie_word_embeddings=tied)
    assert assert_same_logits(model, atol=1e-6, decoder_input_ids=IDS[:, :3]).shape == (2, 3, ROWS)
    assert lm_head(model).scale == (0.25 if tied else 1.0)


def test_a_head_of_another_kind_is_refused() -> None:
    """BART's ``final_logits_bias`` is part of it; what else is done to its logits is not."""
    settings = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1, "decoder_attention_heads": 1}
    model: Any = BartForConditionalGeneration(BartConfig(vocab_size=ROWS, d_model=16, **settings))
    checked_lm_head(model)
    model.final_logits_bias.copy_(torch.arange(ROWS))
    checked_lm_head(model)
    model.register_forward_hook(lambda module, given, output: setattr(output, "logits", 2 * output.logits))
    with pytest.raises(UserError, match="model_type bart: its logits cannot be computed from its hidden states"):
        checked_lm_head(model.train())
    assert model.training


# Name -> the kind of adapters of peft, and its settings.
ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "DoRA on the head": ("Lora", {"r": 2, "target_modules": ["q_proj", "lm_head"], "use_dora": True}),
    "on the head too": ("Lora", {"r": 2, "target_modules": ["q_proj", "lm_head"]}),
    "the head trained as it is": ("Lora", {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "LoHa": ("LoHa", {"r": 2, "target_modules": ["q_proj", "lm_head"]}),
}


def adapted(name: str, **more: Any) -> Any:
    peft = pytest.importorskip("peft")
    kind, settings = ADAPTERS[name]
    model = peft.get_peft_model(decoder("llama"), getattr(peft, f"{kind}Config")(**settings, **more))
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_peft_model(name: str) -> None:
    """In training, what other kinds than LoRA drop of themselves is drawn anew for each head."""
    model, rtol = adapted(name).train(), 1e-5 if ADAPTERS[name][0] == "Lora" else 1e-4
    expected = model(input_ids=IDS, attention_mask=MASK).logits
    assert not torch.allclose(expected, decoder("llama")(input_ids=IDS, attention_mask=MASK).logits, atol=0.1)
    hidden = hidden_states(model, IDS, MASK)
    assert hidden.shape == (2, 4, 16)
    logits = checked_lm_head(model).logits(hidden)
    torch.testing.assert_close(logits, expected, rtol=rtol, atol=rtol)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [torch.autograd.grad(made.square().sum(), trained) for made in (logits, expected)]
    assert all(gradient.any() for gradient in gradients[0])
    torch.testing.assert_close(*gradients, rtol=10 * rtol, atol=1e-4)


def test_adapters_that_the_head_alone_does_not_tell() -> None:
    """One that begins at a token of the input is refused, and so are prompts; what it drops of the weight is drawn, of
    the input not.
    """
    peft = pytest.importorskip("peft")
    activated = adapted("on the head too", alora_invocation_tokens=[5], task_type="CAUSAL_LM")
    with pytest.raises(UserError, match="an activated LoRA, which begins at tokens that the PeftModel looks for"):
        checked_lm_head(activated)
    prompts = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    with pytest.raises(UserError, match="its logits cannot be computed from its hidden states"):
        checked_lm_head(peft.get_peft_model(decoder("llama"), prompts))
    boft = peft.BOFTConfig(boft_block_size=4, boft_dropout=0.5, target_modules=["lm_head"])
    assert checked_lm_head(peft.get_peft_model(decoder("llama"), boft).train()).weight.requires_grad
    for options in ({"lora_dropout": 0.1}, {"lora_bias": True}):
        with pytest.raises(UserError, match="an adapter with dropout or lora_bias on the head"):
            lm_head(adapted("on the head too", **options))


@torch.no_grad()
def test_adapters_on_the_head_that_are_merged_or_switched_off() -> None:
    model = adapted("on the head too").eval()
    before = model(input_ids=IDS, attention_mask=MASK).logits
    with model.disable_adapter():
        without = assert_same_logits(model)
    assert not torch.allclose(without, before, atol=0.1)
    model.merge_adapter()
    found = checked_lm_head(model).logits(hidden_states(model, IDS, MASK))
    torch.testing.assert_close(found, before, rtol=1e-4, atol=1e-4)


# Adapters: frozen weights do not change, the merged model is equivalent, and trained weights can be restored.


@pytest.mark.parametrize("name", ["gpt2_tiny", "granite_tiny", "t5_tiny_regression"])
def test_adapters_alone_are_trained_and_the_merged_model_computes_the_same(name: str, made, logits) -> None:
    full = compose([f"model={name}", "scale=tiny"]).model.lora.full
    model, plain = add_lora(made(name), LoraConfig(rank=2, full=full, alpha=8.0)), made(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):  # so that every adapter, which begins as zero, has changed
        optimizer.zero_grad()
        logits(model.train()).square().mean().backward()
        optimizer.step()
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert changed <= set(trained_state(model))
    assert all("lora_" in key or key.startswith("classification_head.") for key in trained_state(model))
    # What is trained in full needs no adapter beside it.
    assert not [key for key in trained_state(model) if "lora_" in key and key.startswith("classification_head.")]
    with torch.no_grad():
        for weight in trained_state(model).values():  # a few steps hardly move it
            weight.normal_(std=0.3)
        untrained, expected = logits(plain), logits(model.eval())
        merged = merged_state(model)
        assert set(merged) == set(plain.state_dict())
        plain.load_state_dict(merged)
        torch.testing.assert_close(logits(plain), expected, rtol=1e-4, atol=1e-5)
    assert float((expected - untrained).abs().max()) > 0.01
