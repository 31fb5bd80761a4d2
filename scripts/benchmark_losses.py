"""Time and memory of every loss against cross-entropy: python scripts/benchmark_losses.py --out FILE."""

import sys
from collections.abc import Sequence
from itertools import chain

from ntl.benchmarks.timing import add_options, show
from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each loss and part, or JSON with ``--json``; ``--out`` writes the CSV of Figure 3."""
    from ntl.benchmarks.losses import IMPLEMENTATIONS, Setting, benchmark, token_losses

    default = Setting()
    parser = Parser(description=__doc__)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default=default.dtype)
    for name in ("batch", "length", "vocab"):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name), help="(default: %(default)s)")
    what = "start from hidden states of this width, and include the product that gives the logits"
    parser.add_argument("--hidden", type=int, default=0, metavar="WIDTH", help=what)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.8, 0.015], help="shares of number labels")
    parser.add_argument("--ignored", type=float, default=0.0, metavar="SHARE", help="share of labels that do not count")
    parser.add_argument("--losses", nargs="+", default=token_losses(), metavar="LOSS", help="default: all")
    what = "for the losses that have them: %(choices)s (default: reference)"
    parser.add_argument("--implementations", nargs="+", default=["reference"], choices=IMPLEMENTATIONS, help=what)
    add_options(parser, rounds=20)
    chosen = parser.parse_args(argv)
    shape = (chosen.device, chosen.dtype, chosen.batch, chosen.length, chosen.vocab, chosen.hidden, chosen.ignored)
    settings = (Setting(*shape, share) for share in chosen.shares)
    rows = (benchmark(setting, chosen.losses, chosen.implementations, chosen.rounds) for setting in settings)
    show(chain.from_iterable(rows), chosen, "Ratios to CE of the same turn, with quartiles")


if __name__ == "__main__":
    sys.exit(report(main))
