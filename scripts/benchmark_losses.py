"""Time and memory of every loss against cross-entropy: python scripts/benchmark_losses.py --out FILE."""

import sys
from collections.abc import Sequence
from itertools import chain

from ntl.benchmarks.timing import add_options, show
from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each loss and part, or JSON with ``--json``; ``--out`` writes the CSV of Figure 3."""
    from ntl.benchmarks.losses import Setting, benchmark, run_all, token_losses

    default = Setting()
    parser = Parser(description=__doc__)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default=default.dtype)
    parser.add_argument("--batch", type=int, default=default.batch)
    parser.add_argument("--length", type=int, default=default.length)
    parser.add_argument("--vocab", type=int, default=default.vocab)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.8, 0.015], help="shares of number labels")
    parser.add_argument("--losses", nargs="+", default=token_losses(), metavar="LOSS", help="default: all")
    parser.add_argument("--implementations", action="store_true", help="compare implementations of CE + NTL instead")
    add_options(parser, rounds=20)
    chosen = parser.parse_args(argv)
    shape = (chosen.device, chosen.dtype, chosen.batch, chosen.length, chosen.vocab)
    each = (benchmark(Setting(*shape, share), chosen.losses, chosen.rounds) for share in chosen.shares)
    rows = run_all(chosen.device, chosen.rounds) if chosen.implementations else chain.from_iterable(each)
    show(rows, chosen, "Ratios to CE of the same turn, with quartiles", "torch", "transformers")


if __name__ == "__main__":
    sys.exit(report(main))
