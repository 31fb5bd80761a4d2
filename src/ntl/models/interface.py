"""What the training line asks of a language model: its hidden states, and how its head makes logits of them.

Shapes: B batch, S source length, T target length, D hidden size.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import T5Config

from ntl.losses.lm_head import LMHead
from ntl.system.errors import UserError


def hidden_states(
    model: Any, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor | None = None
) -> Tensor:
    """(B, T, D), what the head reads; of an encoder-decoder the decoder's, of a decoder (then T = S) its last layer's.

    input_ids and attention_mask (B, S), decoder_input_ids (B, T). No logits are computed. ``model`` may be a PeftModel
    whose adapters are inside the model, as LoRA's are.
    """
    model = _unwrapped(model)
    if decoder_input_ids is None:
        return model.base_model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)[0]
    encoded = model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)[0]
    return model.get_decoder()(
        input_ids=decoder_input_ids,
        encoder_hidden_states=encoded,
        encoder_attention_mask=attention_mask,
        use_cache=False,
    )[0]


def lm_head(model: Any) -> LMHead:
    """The head of a transformers language model, or of one in a PeftModel, its weight shared with the model."""
    model = _unwrapped(model)
    layer, config = model.get_output_embeddings(), model.config
    return LMHead(_weight(layer), getattr(layer, "bias", None), _scale(config), _cap(config))


def checked_lm_head(model: Any) -> LMHead:
    """``lm_head``, once its logits were those of the model's own forward on two tokens.

    UserError for an architecture that computes them in another way.
    """
    head = lm_head(model)
    was_training = model.training
    model.eval()
    ids = torch.tensor([[0, 1]], device=head.weight.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    with torch.no_grad():
        ours, its = head.logits(hidden_states(model, **inputs)), model(**inputs, use_cache=False).logits
    model.train(was_training)
    # A factor or a cap that was overlooked shows at once; what remains is rounding.
    fits = ours.shape == its.shape  # peft's prompts are more positions
    if not fits or not torch.allclose(ours.float(), its.float(), rtol=0.02, atol=0.02 * float(its.float().std())):
        raise UserError(
            f"model_type {model.config.model_type}: its logits are not what its head makes of its hidden states; "
            "a loss that is computed from hidden states cannot be used with it."
        )
    return head


def _unwrapped(model: Any) -> Any:
    """The transformers model, with its adapters, of a PeftModel; any other as it is."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _weight(layer: Any) -> Tensor:
    """(V, D), with its adapters', in whose graph they are."""
    if not hasattr(layer, "get_delta_weight"):
        return layer.weight
    if layer.merged or layer.disable_adapters:
        return layer.get_base_layer().weight
    if any(getattr(layer.lora_dropout[name], "p", 0.0) for name in layer.active_adapters):
        raise UserError("a LoRA adapter with dropout on the head: a loss from hidden states cannot drop its inputs.")
    weight = layer.get_base_layer().weight
    for name in layer.active_adapters:
        weight = weight + layer.get_delta_weight(name)
    return weight


def _scale(config: Any) -> float:
    if isinstance(config, T5Config) and getattr(config, "scale_decoder_outputs", config.tie_word_embeddings):
        return config.d_model**-0.5
    return getattr(config, "logit_scale", 1.0) / getattr(config, "logits_scaling", 1.0)


def _cap(config: Any) -> float | None:
    return getattr(config, "final_logit_softcapping", None)
