"""What masking the input adds to the time of a training step: python scripts/benchmark_mask.py --out FILE."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json a list of rows. UserError for a wrong setting."""
    from ntl.benchmarks.objectives import compare_masks
    from ntl.benchmarks.timing import show

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
        rows += compare_masks(arguments)
    columns = {
        "variant": lambda row: row["variant"],
        "batch": lambda row: f"{row['batch']} x {row['length']}",
        "masking, ms": lambda row: f"{1000 * row['seconds']:.3f}",
        "step, ms": lambda row: f"{1000 * row['step_seconds']:.1f}",
        "share of a step": lambda row: f"{row['ratio']:.2%} ({row['ratio_low']:.2%}-{row['ratio_high']:.2%})",
    }
    show(rows, arguments, "Masking, relative to a training step", columns)
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
