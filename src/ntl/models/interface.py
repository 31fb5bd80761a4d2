"""The interface of a language model for training: its hidden states, its head that computes logits, its special ids.

Shapes: B batch, S source length, T target length, V vocabulary, D hidden size.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import T5Config

from ntl.losses.fast import LMHead
from ntl.system.errors import UserError

# Of Gemma, of RecurrentGemma, of xLSTM.
SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


def hidden_states(
    model: Any, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor | None = None, **given: Any
) -> Tensor:
    """Return the last hidden states (B, T, D), which the head reads, without computing logits.

    ``model`` is of transformers, or a PeftModel whose adapters are inside the model, as with LoRA; ``input_ids``
    and ``attention_mask`` are (B, S). An encoder-decoder has ``decoder_input_ids`` (B, T); for a decoder, T = S.
    ``given`` are further inputs of a decoder, or the ``encoder_outputs`` where they are there.
    """
    model = _unwrapped(model)
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
    if decoder_input_ids is None:
        return model.base_model(**inputs, **{"use_cache": False, **given})[0]
    encoded = (given.get("encoder_outputs") or model.get_encoder()(**inputs))[0]
    read = {"encoder_hidden_states": encoded, "encoder_attention_mask": attention_mask}
    return model.get_decoder()(input_ids=decoder_input_ids, use_cache=False, **read)[0]


def lm_head(model: Any) -> LMHead:
    """Return the head of a transformers language model, or of one in a PeftModel; it shares the model's weight."""
    model = _unwrapped(model)
    layer, config = model.get_output_embeddings(), model.config
    scale = getattr(config, "logit_scale", None) or 1.0  # None in MPT
    scale = scale / getattr(config, "logits_scaling", 1.0)
    if isinstance(config, T5Config) and getattr(config, "scale_decoder_outputs", config.tie_word_embeddings):
        scale = config.d_model**-0.5
    cap = next((cap for name in SOFT_CAPS if (cap := getattr(config, name, None))), None)
    bias = getattr(layer, "bias", None)
    if bias is None and (of_model := getattr(model, "final_logits_bias", None)) is not None:  # BART and its like
        bias = of_model.squeeze(0)
    return LMHead(_weight(layer), bias, scale, cap)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode, and, also after an error, into the mode that it was in."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def checked_lm_head(model: Any) -> LMHead:
    """Return ``lm_head`` after checking its logits against the model's own forward pass on two tokens.

    Raises UserError for an architecture that computes its logits in another way.
    """
    head = lm_head(model)
    ids = torch.tensor([[0, 1]], device=head.weight.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    with evaluating(model), torch.no_grad(), torch.autocast(head.weight.device.type, enabled=False):
        ours, expected = head.logits(hidden_states(model, **inputs)), model(**inputs, use_cache=False).logits
    # The tolerance allows for rounding; a missing factor or cap exceeds it, small as the logits of new weights are.
    share = 1e-3 if head.weight.dtype in (torch.float32, torch.float64) else 0.02
    atol = share * float(expected.float().std())
    # The prompts of peft's prompt tuning add positions.
    if ours.shape != expected.shape or not torch.allclose(ours.float(), expected.float(), rtol=share, atol=atol):
        raise UserError(
            f"model_type {model.config.model_type}: its logits cannot be computed from its hidden states and its head "
            "alone; a loss from hidden states cannot be used with it."
        )
    return lm_head(model)  # in training, adapters may drop parts of themselves


def has_fixed_mask(model: nn.Module) -> bool:
    """Return whether a buffer is a mask (1, 1, P, P), as of GPT-Neo: it counts what is hidden, and ends at P tokens."""
    return any(buffer.dim() == 4 and buffer.shape[-1] == buffer.shape[-2] > 1 for buffer in model.buffers())


def pad_id(tokenizer: Any) -> int:
    """Return the id that fills up rows: the pad token's, or else the end token's, as masks tell padding apart."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def end_ids(model: Any, tokenizer: Any, also: Sequence[int] = ()) -> list[int]:
    """Return the ids at which an answer ends: the end token, those that the model names beside it, and ``also``."""
    model_ends, end = own_end_ids(model), tokenizer.eos_token_id
    return list(dict.fromkeys([*(model_ends if end in model_ends else [] if end is None else [end]), *also]))


def own_end_ids(model: Any) -> list[int]:
    """Return the end tokens that the model's generation config, or else its config, names."""
    settings = [getattr(model, "generation_config", None), getattr(model, "config", None)]
    named = next((ids for config in settings if (ids := getattr(config, "eos_token_id", None)) is not None), [])
    return [named] if isinstance(named, int) else list(named)


def is_sharded(model: nn.Module) -> bool:
    """Return whether the weights are sharded over the ranks."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def target_scale(config: Any) -> tuple[float, float]:
    """Return the mean and the unit of what a regression head predicts: an answer is mean + unit x output."""
    return getattr(config, "target_mean", 0.0), getattr(config, "target_sd", 1.0)


def _unwrapped(model: Any) -> Any:
    """Return the transformers model, adapters included, inside a PeftModel."""
    if any(getattr(config, "alora_invocation_tokens", None) for config in getattr(model, "peft_config", {}).values()):
        raise UserError(
            "an activated LoRA, which begins at tokens that the PeftModel looks for: a loss from hidden states cannot "
            "be used with it; take a loss from logits."
        )
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _weight(layer: Any) -> Tensor:
    """Return the weight (V, D), including the active adapters, with the graph of these."""
    if not hasattr(layer, "get_base_layer"):
        return layer.weight
    active = () if layer.merged or layer.disable_adapters else layer.active_adapters
    dropouts = [module for name, module in layer.named_modules() if name.rpartition(".")[2] in active]
    has_bias = any(getattr(layer, "lora_bias", {}).get(name) for name in active)
    if has_bias or any(isinstance(module, torch.nn.Dropout) and module.p for module in dropouts):
        raise UserError(
            "an adapter with dropout or lora_bias on the head: a loss from hidden states cannot apply it; leave the "
            "head out of the adapters, or set their dropout to 0 and lora_bias to False."
        )
    base = layer.get_base_layer()
    if all(name in getattr(layer, "lora_A", ()) and not layer.lora_variant.get(name) for name in active):
        weight: Tensor = base.weight
        for name in active:
            weight = weight + layer.get_delta_weight(name)
        return weight
    # DoRA and other kinds: the outputs at the unit vectors are the columns of the weight.
    columns_DV = layer(torch.eye(base.weight.shape[1], dtype=base.weight.dtype, device=base.weight.device))
    return (columns_DV if base.bias is None else columns_DV - base.bias).t()
