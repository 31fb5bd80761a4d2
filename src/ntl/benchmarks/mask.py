"""``scripts/benchmark_mask.py``: what masking the input of a training step (`objective.mask`) adds to its time.

A step is forward and backward of next-token prediction, by a Llama with random weights and by default about as large as
`gpt2_tiny`, where masking weighs most. The variants and the step take turns, and the share is taken within a turn.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch

from ntl.benchmarks.implementations import check
from ntl.benchmarks.mtp import BASELINE, step_of
from ntl.benchmarks.timing import Row, in_turns, ratio_quartiles, remark, seconds, short, show, write_csv
from ntl.config.cli import Parser
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


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json a list of rows. UserError for a wrong setting."""
    parser = Parser(description="What masking the input adds to the time of a training step.")
    parser.add_argument("--vocab", type=int, default=256, help="tokens (default: 256)")
    parser.add_argument("--width", type=int, default=64, help="hidden size (default: 64)")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--length", type=int, nargs="+", default=[32, 128], dest="lengths", help="tokens of a row")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--implementation", default="reference")
    parser.add_argument("--rounds", type=int, default=11, help="turns, of which the median is given (default: 11)")
    parser.add_argument("--out", type=Path, help="also write the rows to this CSV file")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of a table")
    arguments = parser.parse_args(argv)
    rows = []
    for length in arguments.lengths:
        arguments.length = length
        rows += benchmark(arguments)
    if arguments.out:
        write_csv(arguments.out, rows, remark("torch", "transformers"))
    columns = {
        "variant": lambda row: row["variant"],
        "batch": lambda row: f"{row['batch']} x {row['length']}",
        "masking, ms": lambda row: f"{1000 * row['seconds']:.3f}",
        "step, ms": lambda row: f"{1000 * row['step_seconds']:.1f}",
        "share of a step": lambda row: f"{row['ratio']:.2%} ({row['ratio_low']:.2%}-{row['ratio_high']:.2%})",
    }
    show(rows, arguments.json, "Masking, relative to a training step", columns)
    return 0
