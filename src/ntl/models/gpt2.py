"""GPT-2 (Radford et al., 2019): published weights, or the same architecture from scratch."""

from typing import Any

import transformers
from transformers import AutoModelForCausalLM, GPT2LMHeadModel, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from ntl.config.model import GPT2Config
from ntl.models.pretrained import fit_vocabulary, load_pretrained, vocabulary_rows

# The published gelu_new in one kernel instead of seven, which keeps one tensor for the backward pass instead of five.
FUSED = "gelu_pytorch_tanh"


def build(config: GPT2Config, *, tokenizer: Any) -> PreTrainedModel:
    """A decoder whose embedding has a row for every token of ``tokenizer``, the pad token's row among the new ones."""
    if config.pretrained:
        model = fuse_activation(load_pretrained(config, AutoModelForCausalLM, **gpt2_dropout(config)))
    else:
        model = GPT2LMHeadModel(gpt2_config(config, tokenizer))
    return fit_vocabulary(model, tokenizer)


def fuse_activation(model: PreTrainedModel) -> PreTrainedModel:
    """The same model with the same function as activation, ``FUSED``; one that has another stays as it is."""
    if getattr(model.config, "activation_function", "") == "gelu_new":
        model.config.activation_function = FUSED
        for module in model.modules():
            if isinstance(module, GPT2MLP):
                module.act = ACT2FN[FUSED]
    return model


def gpt2_dropout(config: GPT2Config) -> dict[str, Any]:
    """``config.dropout`` under each of the three names that GPT-2 has for it."""
    return dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)


def gpt2_config(config: GPT2Config, tokenizer: Any, **settings: Any) -> transformers.GPT2Config:
    """transformers' config of these shapes; ``settings`` are further ones."""
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
