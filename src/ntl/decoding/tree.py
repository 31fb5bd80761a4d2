"""A model's own distribution of numbers, by a search through the prefix tree of the token sequences that write one.

Probabilities are those of the whole vocabulary's softmax, so that what a model would say in other words, and what the
search leaves out, is missing from their sum.

Shapes: E examples, W prefixes of an example, R prefixes of all examples, K tokens that occur in numbers, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntl.decoding.grammar import DEAD, ENDS, START, NumberTokens
from ntl.decoding.stepping import stepper

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
    """Numbers as text -> log probability, for each of E prompts; token sequences of one text are added up.

    Exact as long as no example has more than ``num_beams`` prefixes of one length. The most probable are kept.

    Args:
        inputs: input_ids and attention_mask (E, S), for a decoder padded on the left.
        max_new_tokens: The longest answer, its end token included.
        tolerance: An example ends where its prefixes have this probability together, or less.
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
