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
from ntl.models.pretrained import ONE_OUTPUT, fit_vocabulary, load_pretrained, pretrained_config
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
        rates = _dropout(config, pretrained_config(config))
        return fit_vocabulary(load_pretrained(config, AutoModelForCausalLM, **rates), tokenizer)
    try:
        defaults = AutoConfig.for_model(config.architecture)
        rates = _dropout(config, defaults)
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
        model = _fuse_activation(load_pretrained(config, AutoModelForCausalLM, **_gpt2_dropout(config)))
    else:
        model = GPT2LMHeadModel(_gpt2_config(config, tokenizer))
    return fit_vocabulary(model, tokenizer)


def build_gpt2_regression(config: GPT2RegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a GPT-2 with one output, a linear function of the hidden state at the last token that is not padding."""
    if config.pretrained:
        settings = {**_gpt2_dropout(config), **ONE_OUTPUT}
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


def _dropout(config: CausalConfig, defaults: Any) -> dict[str, Any]:
    """Return ``config.dropout`` under each of the architecture's names for it; ``defaults`` is its default config."""
    values = defaults.to_dict().items()
    # Layer dropout is something else, and a boolean is a switch, not a rate.
    names = [name for name, rate in values if "drop" in name and "layer" not in name and type(rate) in (int, float)]
    if not config.dropout:
        return dict.fromkeys(names, 0.0)
    if not names:
        raise UserError(
            f"model.dropout={config.dropout}: {defaults.model_type} models have no dropout; set model.dropout=0."
        )
    settings = {} if config.pretrained else config.settings
    if all(settings.get(name, config.dropout) != config.dropout for name in names):
        raise UserError(
            f"model.settings.{names[0]}={settings[names[0]]} model.dropout={config.dropout}: two rates for one "
            "dropout; set model.dropout alone."
        )
    return dict.fromkeys(names, config.dropout)


def _fuse_activation(model: PreTrainedModel) -> PreTrainedModel:
    """Replace the activation gelu_new by ``FUSED``, in place; a model with another activation is not changed."""
    if getattr(model.config, "activation_function", "") == "gelu_new":
        model.config.activation_function = FUSED
        for module in model.modules():
            if isinstance(module, GPT2MLP):
                module.act = ACT2FN[FUSED]
    return model


def _gpt2_dropout(config: GPT2Config) -> dict[str, Any]:
    return dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)


def _gpt2_config(config: GPT2Config, tokenizer: Any, **settings: Any) -> transformers.GPT2Config:
    settings |= {name: getattr(config, name) for name in ("n_positions", "n_embd", "n_layer", "n_head")}
    settings |= {**_vocabulary(config, tokenizer), **_gpt2_dropout(config)}
    return transformers.GPT2Config(activation_function=FUSED, **settings)
