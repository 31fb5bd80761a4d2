"""``scripts/benchmark_mask.py``: what masking the input of a training step (`objective.mask`) adds to its time.

A step is forward and backward of next-token prediction, by a Llama with random weights and by default about as large as
`gpt2_tiny`, where masking weighs most. The variants and the step take turns, and the share is taken within a turn.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch

from ntl.benchmarks.implementations import check
from ntl.benchmarks.mtp import BASELINE, step_of
from ntl.benchmarks.timing import Row, in_turns, ratio_quartiles, seconds, short
from ntl.config.loss import MaskConfig, checked_implementation
from ntl.training.masking import Masking

VARIANTS = ("paper", "code", "random")
REPEATS = 20  # maskings of one measurement


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


def benchmark(arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each variant. Raises UserError for a setting that is not possible."""
    check(arguments.device, arguments.rounds)
    checked_implementation(arguments.implementation)
    calls = {BASELINE: step_of(arguments, BASELINE, 1)}
    calls |= {variant: masking_of(arguments, variant) for variant in VARIANTS}
    for call in calls.values():
        call()
    times = in_turns({name: partial(seconds, call, arguments.device) for name, call in calls.items()}, arguments.rounds)
    settings = ("device", "dtype", "implementation", "vocab", "width", "layers", "batch", "length", "rounds")
    for variant in VARIANTS:
        own = [each / REPEATS for each in times[variant]]
        yield {
            **{name: getattr(arguments, name) for name in settings},
            "variant": variant,
            "seconds": short(median(own)),
            "step_seconds": short(median(times[BASELINE])),
            **{name: short(value) for name, value in ratio_quartiles(own, times[BASELINE]).items()},
        }
