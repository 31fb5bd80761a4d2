"""A model's distribution over numbers, by a search of the prefix tree of the token sequences that write one.

Probabilities are those of the softmax over the whole vocabulary. They sum to less than 1: the rest belongs to answers
that are no number and to numbers that the search left out.

Shapes: E examples, S prompt length, W prefixes of an example, R prefixes of all examples, K tokens that occur in
numbers, V vocabulary.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ntl.decoding.grammar import DEAD, ENDS, START, NumberTokens

Distribution = dict[str, float]
NONE = -torch.inf


def read_numbers(
    model: Any,
    inputs: Mapping[str, Tensor],
    tokens: NumberTokens,
    *,
    num_beams: int,
    max_new_tokens: int,
    tolerance: float = 0.0,
) -> list[Distribution]:
    """Numbers as text -> log probability, for each of E prompts; token sequences of the same text are added up.

    Exact as long as no example has more than ``num_beams`` prefixes of the same length; the most probable are kept.

    Args:
        inputs: input_ids and attention_mask (E, S), for a decoder padded on the left.
        max_new_tokens: The longest answer, its end token included.
        tolerance: The search of an example stops when the sum of its prefixes' probabilities is this or less.
    """
    steps = stepper(model, inputs)
    logits_RV = steps.start()
    examples = len(logits_RV)
    found: list[Distribution] = [{} for _ in range(examples)]
    texts = [[""] for _ in range(examples)]
    total_EW = logits_RV.new_zeros((examples, 1), dtype=torch.float64)
    state_EW = torch.full_like(total_EW, START, dtype=torch.int64)
    for length in range(1, max_new_tokens + 1):
        live_EW = total_EW.isfinite()
        number_RK, end_R = _log_probabilities(logits_RV, tokens)
        _add_ended(found, texts, live_EW, total_EW, state_EW, end_R)
        if length == max_new_tokens:
            break
        allowed_RK = tokens.table[state_EW[live_EW]] != DEAD
        score_EWK = number_RK.new_full((*live_EW.shape, len(tokens.ids)), NONE)
        score_RK = total_EW[live_EW][:, None] + number_RK
        score_EWK[live_EW] = score_RK.masked_fill(~(allowed_RK & score_RK.isfinite()), NONE)
        score_EN = score_EWK.flatten(1)
        best_EW, index_EW = score_EN.topk(min(num_beams, score_EN.shape[1]))
        best_EW = best_EW.masked_fill(best_EW.exp().sum(1, keepdim=True) <= tolerance, NONE)
        width = int(best_EW.isfinite().sum(1).max())
        if not width:
            break
        row_EW = live_EW.flatten().cumsum(0).view_as(live_EW) - 1
        total_EW, index_EW = best_EW[:, :width], index_EW[:, :width]
        parent_EW, token_EW = index_EW // len(tokens.ids), index_EW % len(tokens.ids)
        state_EW = tokens.table[state_EW.gather(1, parent_EW), token_EW]
        texts = _longer_texts(texts, tokens, total_EW, parent_EW, token_EW)
        live_EW = total_EW.isfinite()
        logits_RV = steps.step(row_EW.gather(1, parent_EW)[live_EW], tokens.ids[token_EW[live_EW]])
    return found


def _log_probabilities(logits_RV: Tensor, tokens: NumberTokens) -> tuple[Tensor, Tensor]:
    """(R, K) of the number tokens and (R,) of the end."""
    if logits_RV.dtype.itemsize < 4:
        logits_RV = logits_RV.float()
    normalizer_R1 = logits_RV.logsumexp(-1, keepdim=True).double()
    end_R = logits_RV[:, tokens.end_id] - normalizer_R1[:, 0]
    return logits_RV[:, tokens.ids] - normalizer_R1, end_R


def _add_ended(
    found: list[Distribution],
    texts: list[list[str]],
    live_EW: Tensor,
    total_EW: Tensor,
    state_EW: Tensor,
    end_R: Tensor,
) -> None:
    ended_EW = torch.full_like(total_EW, NONE)
    ended_EW[live_EW] = total_EW[live_EW] + end_R
    ended_EW = ended_EW.masked_fill(~torch.isin(state_EW, state_EW.new_tensor(ENDS)), NONE)
    for example, place in ended_EW.isfinite().nonzero().tolist():
        text = texts[example][place].strip()
        found[example][text] = np.logaddexp(found[example].get(text, NONE), ended_EW[example, place].item()).item()


def _longer_texts(
    texts: list[list[str]], tokens: NumberTokens, total_EW: Tensor, parent_EW: Tensor, token_EW: Tensor
) -> list[list[str]]:
    counts = total_EW.isfinite().sum(1).tolist()
    return [
        [mine[parent] + tokens.pieces[token] for parent, token in zip(parents[:count], ids[:count], strict=True)]
        for mine, count, parents, ids in zip(texts, counts, parent_EW.tolist(), token_EW.tolist(), strict=True)
    ]


class Stepper(Protocol):
    """Logits of the next token, with a key-value cache whose rows are selected anew at every step."""

    def start(self) -> Tensor:
        """Logits (R, V) of the first token of every answer; one row per prompt."""
        ...

    def step(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Logits (R, V) after ``tokens`` (R,), where row i continues row ``rows[i]`` of the step before."""
        ...


def stepper(model: Any, inputs: Mapping[str, Tensor]) -> Stepper:
    """For a decoder, prompts padded on the left, or an encoder-decoder: input_ids and attention_mask (R, S)."""
    return (_EncoderDecoder if model.config.is_encoder_decoder else _Decoder)(model, inputs)


def _select(cache: Any, rows: Tensor) -> None:
    (getattr(cache, "batch_select_indices", None) or cache.reorder_cache)(rows)


class _Decoder:
    def __init__(self, model: Any, inputs: Mapping[str, Tensor]) -> None:
        self.model, self.inputs, self.cache = model, inputs, None
        self.mask = inputs["attention_mask"]
        self.accepted = inspect.signature(model.forward).parameters

    def start(self) -> Tensor:
        # Padding is on the left: positions count tokens only, as in training.
        return self._forward(self.inputs["input_ids"], (self.mask.cumsum(-1) - 1).clamp(min=0))

    def step(self, rows: Tensor, tokens: Tensor) -> Tensor:
        _select(self.cache, rows)
        self.mask = torch.nn.functional.pad(self.mask[rows], (0, 1), value=1)
        return self._forward(tokens[:, None], self.mask.sum(-1, keepdim=True) - 1)

    def _forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        # Models without position_ids derive them from the mask; logits_to_keep saves computing the others.
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
