"""Decoders of transformers from a YAML file: Granite with its special features, and two that are not in the paper."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ntl.config import UserError, build, compose
from ntl.models import checked_lm_head
from ntl.numbers import NumberVocabulary

TINY = ["granite_tiny", "granite_moe_tiny", "llama_tiny", "qwen2_tiny"]


def made(name: str, tokenizer: PreTrainedTokenizerFast, *overrides: str) -> Any:
    torch.manual_seed(0)
    return build(compose([f"model={name}", *overrides]).model, tokenizer=tokenizer)


def batch() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.tensor([[3, 5, 13, 7]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}


@pytest.mark.parametrize(
    ("name", "parameters"), [("granite_3_2_2b", 2_533_531_648), ("granite_3_1_moe_1b", 1_334_628_352)]
)
def test_published_shapes(name: str, parameters: int, tokenizer: PreTrainedTokenizerFast) -> None:
    with torch.device("meta"):
        model = made(name, tokenizer, "model.pretrained=false")
    assert model.num_parameters() == parameters


@pytest.mark.parametrize("name", TINY)
def test_the_head_and_the_special_tokens(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    model = made(name, tokenizer)
    checked_lm_head(model)
    assert (model.config.pad_token_id, model.config.eos_token_id) == (0, 1)
    generated = model.generate(**batch(), max_new_tokens=3, do_sample=False)
    assert generated.shape[1] <= 7


def test_each_factor_of_granite_changes_the_logits(tokenizer: PreTrainedTokenizerFast) -> None:
    """The model is built from one seed with and without each factor: the YAML file's value has an effect."""
    own = made("granite_tiny", tokenizer).eval()(**batch()).logits
    for factor in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
        other = made("granite_tiny", tokenizer, f"model.settings.{factor}=1.5").eval()(**batch()).logits
        assert not torch.allclose(own, other), factor
    scaled = made("granite_tiny", tokenizer, "model.settings.logits_scaling=16.0").eval()(**batch()).logits
    torch.testing.assert_close(scaled * 2, own)


def test_padding_beyond_the_tokenizer_is_kept_and_is_no_number(tokenizer: PreTrainedTokenizerFast) -> None:
    model = made("qwen2_tiny", tokenizer)
    assert model(**batch()).logits.shape == (1, 4, 512)
    vocab = NumberVocabulary.from_tokenizer(tokenizer, vocab_size=512)
    assert vocab.values.shape == (512,)
    assert int(vocab.token_ids.max()) < len(tokenizer) < 512


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("pretrained", [False, True])
def test_dropout_acts(pretrained: bool, name: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """Two passes in training mode differ, whether the model is built from scratch or loaded from a folder."""
    weights: list[str] = []
    if pretrained:
        made(name, tokenizer).save_pretrained(tmp_path)
        weights = [f"model.path={tmp_path}", "model.pretrained=true"]
    model = made(name, tokenizer, "model.dropout=0.25", *weights).train()
    assert model.config.attention_dropout == 0.25
    first, second = (model(**batch()).logits for _ in range(2))
    assert not torch.equal(first, second)
    without = made(name, tokenizer, *weights).train()
    torch.testing.assert_close(without(**batch()).logits, without(**batch()).logits, rtol=0, atol=0)


def test_dropout_without_a_place_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(UserError, match=r"^model\.dropout=0\.1: mamba models have no dropout; set model\.dropout=0\.$"):
        made("llama_tiny", tokenizer, "model.architecture=mamba", "model.dropout=0.1")


def test_two_rates_for_one_dropout_are_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    setting = "+model.settings.attention_dropout=0.3"
    assert made("llama_tiny", tokenizer, setting).config.attention_dropout == 0.3
    with pytest.raises(UserError, match=r"attention_dropout=0\.3 model\.dropout=0\.1: .*set model\.dropout alone"):
        made("llama_tiny", tokenizer, setting, "model.dropout=0.1")


@pytest.mark.parametrize("name", ["granite_tiny", "granite_moe_tiny"])
def test_pretrained_from_a_folder(name: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    first = made(name, tokenizer).eval()
    first.save_pretrained(tmp_path)
    again = made(name, tokenizer, f"model.path={tmp_path}", "model.pretrained=true").eval()
    torch.testing.assert_close(again(**batch()).logits, first(**batch()).logits, rtol=0, atol=0)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(plain(**batch()).logits, first(**batch()).logits, rtol=0, atol=0)
    assert plain.config.logits_scaling == first.config.logits_scaling


def test_the_router_loss_by_hand(tokenizer: PreTrainedTokenizerFast) -> None:
    """Experts x sum over experts of (share of tokens routed there) x (mean router probability), over all layers."""
    model = made("granite_moe_tiny", tokenizer).eval()
    output = model(**batch(), output_router_logits=True)
    probabilities = F.softmax(torch.cat(output.router_logits), dim=-1)
    chosen = F.one_hot(probabilities.topk(2, dim=-1).indices, 4).float()
    expected = 4 * (chosen.mean(0) * probabilities.mean(0)).sum()
    torch.testing.assert_close(output.aux_loss, expected)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.architecture=granit", "model.architecture=granit: "),
        ("model.architecture=t5", "model.architecture=t5: "),
        ("model.settings.hidden_size=three", "model.architecture=llama: "),
        (
            "+model.settings.hiden_size=32",
            "model.settings.hiden_size: there is no such setting. Did you mean 'hidden_size'?",
        ),
    ],
)
def test_one_line_for_a_mistake(override: str, message: str, tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(UserError) as caught:
        made("llama_tiny", tokenizer, override)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
