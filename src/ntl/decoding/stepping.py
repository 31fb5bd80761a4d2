"""Logits of the next token with a key-value cache whose rows are chosen anew at every step.

Shapes: R rows of a step, S prompt length, V vocabulary.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor


class Stepper(Protocol):
    """Begins with one row per prompt; ``rows`` of a step names, for each of its rows, the one that it continues."""

    def start(self) -> Tensor:
        """Logits (R, V) of the first token of every answer."""
        ...

    def step(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Logits (R, V) behind ``tokens`` (R,), each read after what the row ``rows`` (R,) has read until now."""
        ...


def stepper(model: Any, inputs: Mapping[str, Tensor]) -> Stepper:
    """For a decoder, prompts padded on the left, or an encoder-decoder: input_ids and attention_mask (R, S)."""
    kind = _EncoderDecoder if model.config.is_encoder_decoder else _Decoder
    return kind(model, inputs)


def _select(cache: Any, rows: Tensor) -> None:
    (getattr(cache, "batch_select_indices", None) or cache.reorder_cache)(rows)


class _Decoder:
    def __init__(self, model: Any, inputs: Mapping[str, Tensor]) -> None:
        self.model, self.inputs, self.cache = model, inputs, None
        self.mask = inputs["attention_mask"]
        self.accepted = inspect.signature(model.forward).parameters

    def start(self) -> Tensor:
        # Padding stands on the left: positions count tokens, as they do in training.
        return self._forward(self.inputs["input_ids"], (self.mask.cumsum(-1) - 1).clamp(min=0))

    def step(self, rows: Tensor, tokens: Tensor) -> Tensor:
        _select(self.cache, rows)
        self.mask = torch.nn.functional.pad(self.mask[rows], (0, 1), value=1)
        return self._forward(tokens[:, None], self.mask.sum(-1, keepdim=True) - 1)

    def _forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        # Where positions are no argument, they follow from the mask; where the last kept, the rest is not computed.
        options = {"position_ids": positions, "logits_to_keep": 1}
        options = {name: value for name, value in options.items() if name in self.accepted}
        output = self.model(
            input_ids=ids, attention_mask=self.mask, past_key_values=self.cache, use_cache=True, **options
        )
        self.cache = output.past_key_values
        return output.logits[:, -1]


class _EncoderDecoder:
    def __init__(self, model: Any, inputs: Mapping[str, Tensor]) -> None:
        self.model, self.cache = model, None
        self.mask = inputs["attention_mask"]
        self.encoded = model.get_encoder()(input_ids=inputs["input_ids"], attention_mask=self.mask)[0]

    def start(self) -> Tensor:
        return self._forward(self.mask.new_full((len(self.mask),), self.model.config.decoder_start_token_id))

    def step(self, rows: Tensor, tokens: Tensor) -> Tensor:
        _select(self.cache, rows)
        self.mask, self.encoded = self.mask[rows], self.encoded[rows]
        return self._forward(tokens)

    def _forward(self, tokens: Tensor) -> Tensor:
        output = self.model(
            encoder_outputs=(self.encoded,),
            attention_mask=self.mask,
            decoder_input_ids=tokens[:, None],
            past_key_values=self.cache,
            use_cache=True,
        )
        self.cache = output.past_key_values
        return output.logits[:, -1]
