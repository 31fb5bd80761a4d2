"""Time and memory of multi-token prediction by number of heads: python scripts/benchmark_mtp.py --out FILE."""

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

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
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--implementation", nargs="+", default=["reference", "linear"], dest="implementations")
    parser.add_argument("--rounds", type=int, default=5, help="turns, of which the median is given (default: 5)")
    parser.add_argument("--out", type=Path, help="also write the rows to this CSV file")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of a table")
    arguments = parser.parse_args(argv)
    # Imported here: the command has its help at once.
    import torch

    from ntl.benchmarks.objectives import compare_heads
    from ntl.benchmarks.timing import remark, show, write_csv

    if arguments.device == "cpu":
        torch.set_num_threads(1)
    rows = []
    for shape, implementation in product(arguments.shapes, arguments.implementations):
        arguments.shape, arguments.implementation = shape, implementation
        rows += compare_heads(arguments)
    columns = {
        "shape": "{shape}",
        "implementation": "{implementation}",
        "labelled": "{labelled}",
        "form": "{form}",
        "heads": "{heads}",
        "time": "{ratio:.2f} ({ratio_low:.2f}-{ratio_high:.2f})",
        "floor": "{floor:.2f}",
        "over floor": "{over_floor:.2f}",
        "peak MiB": "{peak_mib:.0f}",
        "MiB a head": "{head_mib:.0f}",
    }
    if arguments.out:
        write_csv(arguments.out, rows, remark("torch", "transformers"))
    show(rows, arguments.json, "A step over one of plain cross-entropy", columns)
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
