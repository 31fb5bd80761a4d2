"""``scripts/benchmark_mtp.py``: a step of multi-token prediction, by number of heads, over one of plain cross-entropy.

A step is forward and backward of a Llama with random weights, CE alone, and as many blocks for every number of heads
(heads of one block each, the trunk shorter by as many). The forms are ``next token``, the baseline; ``one at a time``,
where only one head's logits are held; and ``together``. Peak memory is that beyond the weights.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ntl.benchmarks.timing import Row, measure
from ntl.config.loss import MTPConfig, NextTokenConfig, checked_implementation
from ntl.losses import NumberTokenLoss
from ntl.losses.rows import IGNORE_INDEX
from ntl.models.mtp import add_heads
from ntl.numbers import NumberVocabulary
from ntl.objectives.mtp import MultiTokenPrediction
from ntl.objectives.next_token import NextToken
from ntl.system.errors import UserError

SETTINGS = ("device", "dtype", "implementation", "shape", "batch", "length", "rounds")
# SmolLM2-135M, and the 0.3B of Gloeckle et al. (2024) with the tokens and the kind of MLP of Llama.
SHAPES = {"smollm2": "49152x576x30x9x3x1536", "paper": "32000x1024x25x16x16x2736"}
KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


def shape_of(name: str) -> Any:
    """Return the shape of this name, or of tokens, width, blocks, heads, key heads, width of the MLP with x between."""
    try:
        sizes = dict(zip((*KEYS, "intermediate_size"), map(int, SHAPES.get(name, name).split("x")), strict=True))
    except ValueError as error:
        raise UserError(f"--shapes {name}: choose from {', '.join(SHAPES)}, or six numbers, as 9x8x2x1x1x8") from error
    return LlamaConfig(**sizes, bos_token_id=None, eos_token_id=None)  # pyright: ignore[reportArgumentType]


def floor(shape: Any, length: int, heads: int, labelled: float) -> float:
    """Return the operations of a step over those of plain CE: a head adds one unembedding of the labelled positions."""
    width, keys = shape.hidden_size, shape.hidden_size * shape.num_key_value_heads // shape.num_attention_heads
    maps = 2 * width * (width + keys) + 3 * width * shape.intermediate_size
    # A position attends to half of the others in the mean.
    blocks = shape.num_hidden_layers * (maps + 2 * width * length // 2)
    unembedding = labelled * width * shape.vocab_size
    return (blocks + heads * unembedding) / (blocks + unembedding)


def step_of(given: argparse.Namespace, form: str, heads: int) -> Callable[[float], None]:
    """Return a function that computes the loss of the last positions, a share, and all gradients once."""
    torch.manual_seed(0)
    shape = shape_of(given.shape)
    model: Any = LlamaForCausalLM(shape).to(given.device, getattr(torch, given.dtype))
    loss = NumberTokenLoss(NumberVocabulary.without_numbers(shape.vocab_size), shift=False, kind="ce")
    common: Any = {"loss": loss, "implementation": given.implementation}
    if form == "next token":
        objective: Any = NextToken(NextTokenConfig(), model=model, **common)
    else:
        config = MTPConfig(heads=heads, one_at_a_time=form == "one at a time")
        objective = MultiTokenPrediction(config, model=add_heads(model, config), **common)
    ids = torch.randint(0, shape.vocab_size, (given.batch, given.length + 1), device=given.device)
    inputs = ids[:, :-1].contiguous()

    def step(labelled: float) -> None:
        labels = ids[:, 1:].clone()
        labels[:, : round((1 - labelled) * given.length)] = IGNORE_INDEX
        batch = {"input_ids": inputs, "attention_mask": torch.ones_like(inputs), "labels": labels}
        objective(**batch, counts=objective.count(labels)).total.backward()
        objective.zero_grad()

    return step


def compare_heads(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each share of labels, form and number of heads. UserError for a setting that is not possible."""
    checked_implementation(given.implementation)
    shape = shape_of(given.shape)
    if wrong := [heads for heads in given.heads if not 1 <= heads <= shape.num_hidden_layers]:
        raise UserError(f"--heads {wrong[0]}: choose from 1 to the number of blocks, {shape.num_hidden_layers}")
    if wrong := [each for each in given.labelled if not 0 < each <= 1]:
        raise UserError(f"--labelled {wrong[0]}: give shares above 0 and at most 1")
    ways = [("next token", 1), *((form, heads) for heads in given.heads for form in given.forms)]
    steps = {way: step_of(given, *way) for way in ways}
    for labelled in given.labelled:
        plain = 0.0
        calls = {way: partial(step, labelled) for way, step in steps.items()}
        for (form, heads), row in measure(calls, given.device, given.rounds):
            peak, least = row["peak_mib"], floor(shape, given.length, heads, labelled)
            plain = plain or peak  # of the first
            yield {
                **{name: getattr(given, name) for name in SETTINGS},
                **{"labelled": labelled, "form": form, "heads": heads, **row, "floor": least},
                **{"over_floor": row["ratio"] / least, "peak_ratio": peak / plain},
                "head_mib": (peak - plain) / max(heads - 1, 1),
            }
