"""Steps of multi-token prediction, by number of heads, and masking of the input, against next-token prediction.

``scripts/benchmark_mtp.py``: a step is forward and backward of a Llama with random weights and as many blocks for every
number of heads (heads of one block each, the trunk shorter by as many). The forms are ``next token``, the baseline;
``one at a time``, where only one head's logits are held; and ``together``, the plain sum of the heads' losses. The
forms take turns, and ratios are taken within a turn. Peak memory is that of the step beyond the weights, the gradients
included.

``scripts/benchmark_mask.py``: what masking the input of a step (`objective.mask`) adds to its time, by default for a
model about as large as `gpt2_tiny`, where masking weighs most.
"""

import argparse
import gc
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ntl.benchmarks.implementations import check, number_vocabulary
from ntl.benchmarks.timing import Row, in_turns, peak_bytes, ratio_quartiles, seconds, short
from ntl.config.loss import MaskConfig, MTPConfig, NextTokenConfig, checked_implementation
from ntl.losses.fused.terms import Terms
from ntl.models.mtp import add_heads
from ntl.system.errors import UserError
from ntl.training.masking import Masking
from ntl.training.objectives.mtp import MultiTokenPrediction
from ntl.training.objectives.next_token import NextToken

BASELINE, ONE, TOGETHER = "next token", "one at a time", "together"
SETTINGS = ("device", "dtype", "implementation", "vocab", "width", "layers", "batch", "length", "rounds")
VARIANTS = ("paper", "code", "random")
REPEATS = 20  # maskings of one measurement


def random_llama(arguments: argparse.Namespace, width: int, pad: int | None = None) -> Any:
    """Return a Llama of random weights, always the same."""
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=arguments.vocab,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=arguments.layers,
        num_attention_heads=max(width // 64, 1),
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=pad,
    )
    network: Any = LlamaForCausalLM(shape)
    return network.to(arguments.device)


def step_of(arguments: argparse.Namespace, form: str, heads: int) -> Callable[[], None]:
    """Return a function that computes the loss and all gradients once."""
    model = random_llama(arguments, arguments.width).to(getattr(torch, arguments.dtype))
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
    for step in steps.values():
        step()
    times = in_turns({name: partial(seconds, step, arguments.device) for name, step in steps.items()}, arguments.rounds)
    for form, heads in ways:
        own, base = times[str((form, heads))], times[str(ways[0])]
        yield {
            **{name: getattr(arguments, name) for name in SETTINGS},
            "form": form,
            "heads": heads,
            "seconds": short(median(own)),
            **{name: short(value) for name, value in ratio_quartiles(own, base).items()},
            "peak_mib": short(peaks[form, heads]),
            "peak_ratio": short(peaks[form, heads] / peaks[ways[0]]),
        }


def masking_of(arguments: argparse.Namespace, variant: str) -> Callable[[], None]:
    """Return a function that masks a batch ``REPEATS`` times."""
    allowed = torch.ones(arguments.vocab, dtype=torch.bool)
    allowed[0] = False
    config, token = MaskConfig(fraction=0.15, variant=variant), None if variant == "random" else 0
    masking = Masking(config, seed=1, length=arguments.length, maskable=allowed, mask_token_id=token)
    ids = torch.randint(1, arguments.vocab, (arguments.batch, arguments.length), device=arguments.device)
    attended, examples = torch.ones_like(ids), torch.arange(arguments.batch)

    def repeat() -> None:
        for step in range(REPEATS):
            masking({"input_ids": ids, "attention_mask": attended}, step=step, first_row=0, examples=examples)

    return repeat


def compare_masks(arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each variant. Raises UserError for a setting that is not possible."""
    check(arguments.device, arguments.rounds)
    checked_implementation(arguments.implementation)
    calls = {BASELINE: step_of(arguments, BASELINE, 1)}
    calls |= {variant: masking_of(arguments, variant) for variant in VARIANTS}
    for call in calls.values():
        call()
    times = in_turns({name: partial(seconds, call, arguments.device) for name, call in calls.items()}, arguments.rounds)
    for variant in VARIANTS:
        own = [each / REPEATS for each in times[variant]]
        yield {
            **{name: getattr(arguments, name) for name in SETTINGS},
            "variant": variant,
            "seconds": short(median(own)),
            "step_seconds": short(median(times[BASELINE])),
            **{name: short(value) for name, value in ratio_quartiles(own, times[BASELINE]).items()},
        }
