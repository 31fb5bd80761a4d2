"""Decoder-only models: GPT-2 (Radford et al., 2019) of our shapes, and any other that transformers has.

What is special about an architecture, such as Granite's multipliers, Gemma's logit cap or Llama's rotary positions, is
implemented in transformers. Nothing here depends on it.
"""

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
from transformers.activations import ACT2FN
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from ntl.config.model import CausalConfig, GPT2Config, GPT2RegressionConfig
from ntl.config.suggestions import nearest
from ntl.models.pretrained import ONE_OUTPUT, dropout_rates, fit_vocabulary, load_pretrained
from ntl.models.special import pad_id
from ntl.system.errors import UserError

# The same function as the published gelu_new, but one kernel instead of seven. It saves one tensor for the backward
# pass instead of five.
FUSED = "gelu_pytorch_tanh"


def build(config: CausalConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a decoder whose embedding has a row for every token of ``tokenizer``.

    ``config.dropout`` applies wherever the architecture has dropout.

    Raises:
        UserError: The architecture or a setting is unknown, the architecture has no dropout although
            ``config.dropout`` is set, or ``config.settings`` sets another rate.
    """
    if config.pretrained:
        return fit_vocabulary(load_pretrained(config, AutoModelForCausalLM, **dropout_rates(config)), tokenizer)
    try:
        defaults = AutoConfig.for_model(config.architecture)
        rates = _random_dropout(config, defaults)
        settings = AutoConfig.for_model(
            config.architecture, **_vocabulary(config, tokenizer), **{**rates, **config.settings}
        )
        model = AutoModelForCausalLM.from_config(settings)
    except UserError:
        raise
    except Exception as error:  # an unknown architecture, a wrong setting and inconsistent shapes differ in type
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"model={config.name} model.architecture={config.architecture}: {reason}") from error
    for name in config.settings:
        # transformers keeps this one under a private name.
        if name != "attn_implementation" and not hasattr(defaults, name):
            raise UserError(
                f"model.architecture={config.architecture} model.settings.{name}: there is no such setting."
                f"{nearest(name, defaults.to_dict())}"
            )
    return fit_vocabulary(model, tokenizer)


def build_gpt2(config: GPT2Config, *, tokenizer: Any) -> PreTrainedModel:
    """Build a GPT-2 whose embedding has a row for every token of ``tokenizer``, including a new one for padding."""
    if config.pretrained:
        model = _fuse_activation(load_pretrained(config, AutoModelForCausalLM, **dropout_rates(config)))
    else:
        model = GPT2LMHeadModel(_gpt2_config(config, tokenizer))
    return fit_vocabulary(model, tokenizer)


def build_gpt2_regression(config: GPT2RegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a GPT-2 with one output, a linear function of the hidden state at the last token that is not padding."""
    if config.pretrained:
        settings = {**dropout_rates(config), **ONE_OUTPUT}
        model = load_pretrained(config, AutoModelForSequenceClassification, new_weights="score.", **settings)
        model = _fuse_activation(model)
    else:
        model = GPT2ForSequenceClassification(_gpt2_config(config, tokenizer, **ONE_OUTPUT))
    return fit_vocabulary(model, tokenizer)


def _vocabulary(config: CausalConfig | GPT2Config, tokenizer: Any) -> dict[str, Any]:
    return {
        "vocab_size": max(config.vocab_size, len(tokenizer)),
        "bos_token_id": tokenizer.eos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": pad_id(tokenizer),
    }


def _random_dropout(config: CausalConfig, defaults: Any) -> dict[str, Any]:
    """Return ``dropout_rates`` of a model with random weights; ``config.settings`` must not name another rate."""
    rates = dropout_rates(config, defaults)
    if config.dropout and all(config.settings.get(name, config.dropout) != config.dropout for name in rates):
        name = next(iter(rates))
        raise UserError(
            f"model.settings.{name}={config.settings[name]} model.dropout={config.dropout}: two rates for one "
            "dropout; set model.dropout alone."
        )
    return rates


def _fuse_activation(model: PreTrainedModel) -> PreTrainedModel:
    """Replace the activation gelu_new by ``FUSED``, in place; the config stays, and so does another activation."""
    if getattr(model.config, "activation_function", "") == "gelu_new":
        for module in model.modules():
            if isinstance(module, GPT2MLP):
                module.act = ACT2FN[FUSED]
    return model


def _gpt2_config(config: GPT2Config, tokenizer: Any, **settings: Any) -> transformers.GPT2Config:
    settings |= {name: getattr(config, name) for name in ("n_positions", "n_embd", "n_layer", "n_head")}
    settings |= {**_vocabulary(config, tokenizer), **dropout_rates(config, transformers.GPT2Config())}
    return transformers.GPT2Config(activation_function=FUSED, **settings)
