"""``scripts/benchmark_mtp.py``: steps of multi-token prediction, by number of heads, against next-token prediction.

A step is forward and backward of a Llama with random weights and as many blocks for every number of heads (heads of one
block each, the trunk shorter by as many). The forms are ``next token``, the baseline; ``one at a time``, where only one
head's logits are held; and ``together``, the plain sum of the heads' losses. The forms take turns, and ratios are taken
within a turn. Peak memory is that of the step beyond the weights, the gradients included.
"""

import argparse
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ntl.benchmarks.implementations import check, number_vocabulary
from ntl.benchmarks.timing import Row, peak_bytes, rounded, summary, times_in_turns
from ntl.config.loss import MTPConfig, NextTokenConfig, checked_implementation
from ntl.losses.kinds import Terms
from ntl.models.mtp import add_heads
from ntl.objectives.mtp import MultiTokenPrediction
from ntl.objectives.next_token import NextToken
from ntl.system.errors import UserError

BASELINE, ONE, TOGETHER = "next token", "one at a time", "together"
SETTINGS = ("device", "dtype", "implementation", "vocab", "width", "layers", "batch", "length", "rounds")


def random_llama(arguments: argparse.Namespace) -> Any:
    """Return a Llama of random weights, always the same."""
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=arguments.vocab,
        hidden_size=arguments.width,
        intermediate_size=4 * arguments.width,
        num_hidden_layers=arguments.layers,
        num_attention_heads=max(arguments.width // 64, 1),
        bos_token_id=None,
        eos_token_id=None,
    )
    network: Any = LlamaForCausalLM(shape)
    return network.to(arguments.device)


def step_of(arguments: argparse.Namespace, form: str, heads: int) -> Callable[[], None]:
    """Return a function that computes the loss and all gradients once."""
    model = random_llama(arguments).to(getattr(torch, arguments.dtype))
    terms = Terms.of("was", 0.3, {})
    terms = Terms(terms.base, terms.numbers, terms.weight, arguments.implementation)
    common: Any = {"model": model, "terms": terms, "number_vocab": number_vocabulary(arguments.vocab)}
    if form == BASELINE:
        objective: Any = NextToken(NextTokenConfig(), **common)
    else:
        config = MTPConfig(heads=heads, one_at_a_time=form == ONE)
        add_heads(model, config)
        objective = MultiTokenPrediction(config, **common)
    objective.train()
    ids = torch.randint(0, arguments.vocab, (arguments.batch, arguments.length + 1), device=arguments.device)
    inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    counts = objective.count(labels)

    def step() -> None:
        objective(inputs, torch.ones_like(inputs), labels, counts=counts).total.backward()
        objective.zero_grad()

    return step


def compare_heads(arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each form and number of heads. Raises UserError for a setting that is not possible."""
    check(arguments.device, arguments.rounds)
    checked_implementation(arguments.implementation)
    if wrong := [heads for heads in arguments.heads if not 1 <= heads <= arguments.layers]:
        raise UserError(f"--heads {wrong[0]}: choose from 1 to --layers, {arguments.layers}")
    ways = [(BASELINE, 1), *((form, heads) for heads in arguments.heads for form in (ONE, TOGETHER))]
    peaks = {}
    for way in ways:  # one model at a time is in memory
        step = step_of(arguments, *way)
        step()
        peaks[way] = peak_bytes(step, arguments.device) / 2**20
        del step
        gc.collect()
    steps = {str(way): step_of(arguments, *way) for way in ways}
    times = times_in_turns(steps, arguments.device, arguments.rounds)
    for form, heads in ways:
        peak = peaks[form, heads]
        yield {
            **{name: getattr(arguments, name) for name in SETTINGS},
            "form": form,
            "heads": heads,
            **rounded(summary(times[str((form, heads))], times[str(ways[0])])),
            **rounded({"peak_mib": peak, "peak_ratio": peak / peaks[ways[0]]}),
        }
