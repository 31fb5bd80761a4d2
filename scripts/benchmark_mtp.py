"""Time and memory of multi-token prediction by number of heads: python scripts/benchmark_mtp.py --out FILE."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from itertools import chain, product

from ntl.benchmarks.timing import add_options, show
from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json a list of rows. UserError for a wrong setting."""
    parser = Parser(description="Time and memory of multi-token prediction by number of heads.")
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    what = "smollm2, paper, or tokens x width x blocks x heads x key heads x width of the MLP (default: %(default)s)"
    parser.add_argument("--shapes", nargs="+", default=["8192x128x8x2x2x512"], metavar="SHAPE", help=what)
    what = "share of positions that have a label, the last ones of a row (default: all, and a tenth)"
    parser.add_argument("--labelled", type=float, nargs="+", default=[1.0, 0.1], metavar="SHARE", help=what)
    forms = ["one at a time", "together"]
    parser.add_argument("--forms", nargs="+", default=forms, choices=forms)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--implementation", nargs="+", default=["reference", "linear"], dest="implementations")
    add_options(parser, rounds=5)
    arguments = parser.parse_args(argv)
    # Imported here: the command has its help at once.
    from ntl.benchmarks.objectives import compare_heads

    given = (
        Namespace(**{**vars(arguments), "shape": shape, "implementation": implementation})
        for shape, implementation in product(arguments.shapes, arguments.implementations)
    )
    rows = chain.from_iterable(map(compare_heads, given))
    show(rows, arguments, "A step over one of plain cross-entropy", "torch", "transformers")
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
