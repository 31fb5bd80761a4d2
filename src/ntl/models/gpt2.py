"""GPT-2 (Radford et al., 2019): published weights, or the same architecture from scratch."""

from typing import Any

import transformers
from transformers import AutoModelForCausalLM, GPT2LMHeadModel, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from ntl.config.model import GPT2Config
from ntl.models.pretrained import fit_vocabulary, load_pretrained, vocabulary_rows

# The same function as the published gelu_new, but one kernel instead of seven. It saves one tensor for the backward
# pass instead of five.
FUSED = "gelu_pytorch_tanh"


def build(config: GPT2Config, *, tokenizer: Any) -> PreTrainedModel:
    """Build a decoder whose embedding has a row for every token of ``tokenizer``, including a new one for padding."""
    if config.pretrained:
        model = fuse_activation(load_pretrained(config, AutoModelForCausalLM, **gpt2_dropout(config)))
    else:
        model = GPT2LMHeadModel(gpt2_config(config, tokenizer))
    return fit_vocabulary(model, tokenizer)


def fuse_activation(model: PreTrainedModel) -> PreTrainedModel:
    """Replace the activation gelu_new by ``FUSED``, in place; a model with another activation is not changed."""
    if getattr(model.config, "activation_function", "") == "gelu_new":
        model.config.activation_function = FUSED
        for module in model.modules():
            if isinstance(module, GPT2MLP):
                module.act = ACT2FN[FUSED]
    return model


def gpt2_dropout(config: GPT2Config) -> dict[str, Any]:
    """Return ``config.dropout`` under each of GPT-2's three names for it."""
    return dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)


def gpt2_config(config: GPT2Config, tokenizer: Any, **settings: Any) -> transformers.GPT2Config:
    """Return transformers' config of these shapes, with additional ``settings``."""
    return transformers.GPT2Config(
        vocab_size=vocabulary_rows(config.vocab_size, tokenizer),
        n_positions=config.n_positions,
        n_embd=config.n_embd,
        n_layer=config.n_layer,
        n_head=config.n_head,
        activation_function=FUSED,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **gpt2_dropout(config),
        **settings,
    )
