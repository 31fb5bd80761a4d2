"""Regression heads of transformers, built from a config, a language model's weights, or a checkpoint of their own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
    T5ForSequenceClassification,
)

from ntl.config import UserError, build, compose

# Name -> (its language model, its class, the weights that it adds).
HEADS = {
    "t5_tiny_regression": ("t5_tiny", T5ForSequenceClassification, "classification_head."),
    "gpt2_tiny_regression": ("gpt2_tiny", GPT2ForSequenceClassification, "score."),
}
# The end token is 1. T5's head reads the state there, GPT-2's at the last token that is not padding.
IDS = torch.tensor([[3, 5, 7, 1], [2, 1, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def made(name: str, tokenizer: PreTrainedTokenizerFast, *overrides: str) -> Any:
    torch.manual_seed(0)
    return build(compose([f"model={name}", *overrides]).model, tokenizer=tokenizer).eval()


def outputs(model: Any, ids: torch.Tensor = IDS, mask: torch.Tensor = MASK) -> torch.Tensor:
    return model(input_ids=ids, attention_mask=mask, use_cache=False).logits


@pytest.mark.parametrize("name", HEADS)
def test_one_output_that_padding_does_not_change(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    model = made(name, tokenizer)
    assert isinstance(model, HEADS[name][1])
    together = outputs(model)
    assert together.shape == (2, 1)
    torch.testing.assert_close(together[1:], outputs(model, IDS[1:, :2], MASK[1:, :2]), rtol=1e-5, atol=1e-6)
    assert not model.can_generate()


@pytest.mark.parametrize("name", HEADS)
def test_the_body_of_a_language_model(name: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    body, _, head = HEADS[name]
    language_model = made(body, tokenizer)
    language_model.save_pretrained(tmp_path)
    model = made(name, tokenizer, f"model.path={tmp_path}", "model.pretrained=true")
    state = model.state_dict()
    shared = {key: tensor for key, tensor in language_model.base_model.state_dict().items() if "lm_head" not in key}
    assert len(shared) > 10
    for weight, tensor in shared.items():
        torch.testing.assert_close(state[f"transformer.{weight}"], tensor, rtol=0, atol=0)
    assert any(weight.startswith(head) for weight in state)


@pytest.mark.parametrize("name", HEADS)
def test_its_own_checkpoint(name: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = made(name, tokenizer)
    model.save_pretrained(tmp_path)
    again = made(name, tokenizer, f"model.path={tmp_path}", "model.pretrained=true")
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    for other in (again, plain):
        torch.testing.assert_close(dict(other.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
        torch.testing.assert_close(outputs(other), outputs(model), rtol=1e-5, atol=0)


def test_another_architecture_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    made("gpt2_tiny", tokenizer).save_pretrained(tmp_path)
    with pytest.raises(UserError) as caught:
        made("t5_tiny_regression", tokenizer, f"model.path={tmp_path}", "model.pretrained=true")
    assert "\n" not in str(caught.value)
