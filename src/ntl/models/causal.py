"""Decoder-only models: GPT-2 (Radford et al., 2019) of our shapes, and any other that transformers has."""

from typing import Any

import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedModel,
)

from ntl.config.model import CausalConfig, GPT2Config, GPT2RegressionConfig
from ntl.config.settings import nearest
from ntl.models.interface import pad_id
from ntl.models.pretrained import ONE_OUTPUT, dropout_rates, fit_vocabulary, load
from ntl.system.errors import UserError


def build(config: CausalConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a decoder whose embedding has a row for every token of ``tokenizer``.

    UserError: the architecture or a setting is unknown, or there is no such dropout.
    """
    if config.pretrained:
        return load(config, AutoModelForCausalLM, tokenizer)
    chosen, where = config.settings, f"model.architecture={config.architecture}"
    try:
        defaults = AutoConfig.for_model(config.architecture)
        settings = {**_vocabulary(config, tokenizer), **dropout_rates(config, defaults), **chosen}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.architecture, **settings))
    except UserError:
        raise
    except Exception as error:  # an unknown architecture, a wrong setting and inconsistent shapes differ in type
        raise UserError(f"model={config.name} {where}: {' '.join(str(error).split())[:300]}") from error
    for name in chosen:
        # transformers keeps this one under a private name.
        if name != "attn_implementation" and not hasattr(defaults, name):
            hint = nearest(name, defaults.to_dict())
            raise UserError(f"{where} model.settings.{name}: there is no such setting.{hint}")
    return fit_vocabulary(model, tokenizer)


def build_gpt2(config: GPT2Config, *, tokenizer: Any) -> PreTrainedModel:
    """Build a GPT-2 whose embedding has a row for every token of ``tokenizer``, including a new one for padding."""
    if config.pretrained:
        return load(config, AutoModelForCausalLM, tokenizer)
    return fit_vocabulary(GPT2LMHeadModel(_gpt2_config(config, tokenizer)), tokenizer)


def build_gpt2_regression(config: GPT2RegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a GPT-2 with one output, a linear function of the hidden state at the last token that is not padding."""
    if config.pretrained:
        return load(config, AutoModelForSequenceClassification, tokenizer, new_weights="score.", **ONE_OUTPUT)
    return fit_vocabulary(GPT2ForSequenceClassification(_gpt2_config(config, tokenizer, **ONE_OUTPUT)), tokenizer)


def _vocabulary(config: CausalConfig | GPT2Config, tokenizer: Any) -> dict[str, Any]:
    end = tokenizer.eos_token_id
    roles = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": pad_id(tokenizer)}
    return {"vocab_size": max(config.vocab_size, len(tokenizer)), **roles}


def _gpt2_config(config: GPT2Config, tokenizer: Any, **settings: Any) -> transformers.GPT2Config:
    settings |= {name: getattr(config, name) for name in ("n_positions", "n_embd", "n_layer", "n_head")}
    settings |= {**_vocabulary(config, tokenizer), **dropout_rates(config, transformers.GPT2Config())}
    # The same function as the published gelu_new, in one kernel instead of seven.
    return transformers.GPT2Config(activation_function="gelu_pytorch_tanh", **settings)
