"""Every setting of a model's config changes the model or raises an error: none changes only the run's id."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from ntl.config import ModelConfig, UserError, build, compose
from ntl.config.folders import choices
from ntl.models.lora import add_lora

# The source of the weights and the meaning of a name, which have tests of their own.
SOURCES = {"_target_", "hub_id", "tokenizer_hub_id", "path", "pretrained"}
# Values of strings -> other values that a model can be built with.
WORDS = {"granite": "llama", "granitemoe": "mixtral", "llama": "mistral", "qwen2": "llama"}
WORDS |= {"t5": "decoder", "decoder": "t5", "t5_regression": "decoder_regression"}
WORDS |= {"decoder_regression": "t5_regression"}
# One model of each builder, and one with settings of its own.
NAMES = [
    "gpt2_tiny",
    "gpt2_small_regression",
    "granite_moe_tiny",
    "rt_tiny",
    "t5_base",
    "t5_tiny_regression",
    "xval_tiny",
]
TAKE_WEIGHTS = ["gpt2_small", "gpt2_small_regression", "rt", "t5_small_regression"]
LORA = {"rank": "3", "alpha": "7", "dropout": "0.25", "full": "[ln_]"}


def _settings(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Return every leaf with its value, including those of free mappings."""
    values = {item.name: getattr(config, item.name) for item in fields(config)} if is_dataclass(config) else config
    for name, value in values.items():
        if is_dataclass(value) or isinstance(value, dict):
            yield from _settings(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _other(name: str, value: Any) -> str:
    if name.startswith("lora."):
        return LORA[name.removeprefix("lora.")]
    if isinstance(value, bool):
        return str(not value).lower()
    if value is None:  # the dropout of the weights
        return "0.25"
    if isinstance(value, str):
        return WORDS.get(value, "other")
    if isinstance(value, float):
        return str(value / 2 + 0.125)
    return str(2 * value or 1024)


def _built(words: list[str], tokenizer: PreTrainedTokenizerFast, on: str = "meta") -> str:
    """Return everything in which two models differ, except the random values of their weights."""
    config: ModelConfig = compose(words).model
    with torch.device(on):
        model: Any = build(config, tokenizer=tokenizer)
        if config.lora.rank:
            add_lora(model, config.lora)
    trained = [(name, weight.shape, weight.requires_grad) for name, weight in model.named_parameters()]
    scales = [getattr(module, "scaling", None) for module in model.modules()]
    return repr((type(model), sorted(model.config.to_dict().items(), key=repr), str(model), trained, scales))


def _without_effect(
    words: list[str], tokenizer: PreTrainedTokenizerFast, on: str = "meta", begin: str = ""
) -> list[str]:
    """Return the settings with this prefix that change nothing and raise no error that names them."""
    plain, found = _built(words, tokenizer, on), []
    for name, value in _settings(compose(words).model):
        if name not in SOURCES and name.startswith(begin):
            try:
                changed = _built([*words, f"model.{name}={_other(name, value)}"], tokenizer, on)
            except UserError as error:
                found += [] if name.rpartition(".")[2] in str(error) else [f"{name}: {error}"]
            else:
                found += [name] if changed == plain else []
    return found


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_from_scratch(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    assert _without_effect([f"model={name}", "scale=tiny", "model.pretrained=false"], tokenizer) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKE_WEIGHTS)
def test_beside_weights(name: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    # The weights of the smallest model of the family take the place of published weights.
    made_by = compose([f"model={name}"]).model
    kind = (made_by._target_, getattr(made_by, "architecture", ""))
    models = {each: compose([f"model={each}"]).model for each in choices("model") if "tiny" in each}
    tiny = next(each for each, of in models.items() if (of._target_, getattr(of, "architecture", "")) == kind)
    build(compose([f"model={tiny}"]).model, tokenizer=tokenizer).save_pretrained(tmp_path)
    words = [f"model={name}", "scale=tiny", "model.pretrained=true", f"model.path={tmp_path}"]
    assert _without_effect(words, tokenizer, on="cpu") == []
    assert _without_effect([*words, "model.lora.rank=2"], tokenizer, on="cpu", begin="lora.") == []
