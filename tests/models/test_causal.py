"""Decoders of transformers from a YAML file: Granite with its special features, and two that are not in the paper."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from ntl.config import UserError
from ntl.numbers import NumberVocabulary

BATCH = {"input_ids": torch.tensor([[3, 5, 13, 7]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}


def test_each_factor_of_granite_changes_the_logits(made) -> None:
    """The model is built from one seed with and without each factor: the YAML file's value has an effect."""
    own = made("granite_tiny")(**BATCH).logits
    for factor in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
        other = made("granite_tiny", f"model.settings.{factor}=1.5")(**BATCH).logits
        assert not torch.allclose(own, other), factor
    scaled = made("granite_tiny", "model.settings.logits_scaling=16.0")(**BATCH).logits
    torch.testing.assert_close(scaled * 2, own)


def test_padding_beyond_the_tokenizer_is_kept_and_is_no_number(made, tokenizer: PreTrainedTokenizerFast) -> None:
    assert made("qwen2_tiny")(**BATCH).logits.shape == (1, 4, 512)
    vocab = NumberVocabulary.from_tokenizer(tokenizer, vocab_size=512)
    assert vocab.values.shape == (512,)
    assert int(vocab.token_ids.max()) < len(tokenizer) < 512


@pytest.mark.slow
@pytest.mark.parametrize("name", ["granite_tiny", "granite_moe_tiny", "llama_tiny", "qwen2_tiny"])
def test_dropout_acts(name: str, made, tmp_path: Path) -> None:
    """Two passes in training mode differ, whether the model is built from scratch or loaded from a folder."""
    made(name).save_pretrained(tmp_path)
    for folder in ("", tmp_path):
        of = "hf" if folder else name
        model, without = made(of, "model.dropout=0.25", folder=folder).train(), made(of, folder=folder).train()
        assert not torch.equal(model(**BATCH).logits, model(**BATCH).logits)
        torch.testing.assert_close(without(**BATCH).logits, without(**BATCH).logits, rtol=0, atol=0)


def test_two_rates_for_one_dropout_are_refused(made) -> None:
    setting = "+model.settings.attention_dropout=0.3"
    assert made("llama_tiny", setting).config.attention_dropout == 0.3
    with pytest.raises(UserError, match=r"attention_dropout=0\.3 model\.dropout=0\.1: .*set model\.dropout alone"):
        made("llama_tiny", setting, "model.dropout=0.1")


def test_the_router_loss_by_hand(made) -> None:
    """Experts x sum over experts of (share of tokens routed there) x (mean router probability), over all layers."""
    output = made("granite_moe_tiny")(**BATCH, output_router_logits=True)
    probabilities = F.softmax(torch.cat(output.router_logits), dim=-1)
    chosen = F.one_hot(probabilities.topk(2, dim=-1).indices, 4).float()
    expected = 4 * (chosen.mean(0) * probabilities.mean(0)).sum()
    torch.testing.assert_close(output.aux_loss, expected)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.architecture=granit"], r"model\.architecture=granit: "),
        (["model.settings.hidden_size=three"], r"model\.architecture=llama: "),
        (
            ["+model.settings.hiden_size=32"],
            r"model\.settings\.hiden_size: there is no such setting\. Did you mean 'hidden_size'\?",
        ),
        (["+model.settings.attn_implementation=fast"], r"model\.architecture=llama: .*attn_implementation.*fast"),
        (
            ["model.architecture=mamba", "model.dropout=0.1"],
            r"^model\.dropout=0\.1: mamba models have no dropout; set model\.dropout=0\.$",
        ),
    ],
)
def test_one_line_for_a_mistake(overrides: list[str], message: str, made) -> None:
    with pytest.raises(UserError, match=message) as caught:
        made("llama_tiny", *overrides)
    assert "\n" not in str(caught.value)
