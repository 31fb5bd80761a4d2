"""Time and memory of multi-token prediction by number of heads: python scripts/benchmark_mtp.py --out FILE."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json a list of rows. UserError for a wrong setting."""
    parser = Parser(description="Time and memory of multi-token prediction by number of heads.")
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--vocab", type=int, default=8192, help="tokens (default: 8192)")
    parser.add_argument("--width", type=int, default=128, help="hidden size (default: 128)")
    parser.add_argument("--layers", type=int, default=8, help="blocks of the next-token model (default: 8)")
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
    from ntl.benchmarks.objectives import compare_heads
    from ntl.benchmarks.timing import remark, show, write_csv

    rows = []
    for name in arguments.implementations:
        arguments.implementation = name
        rows += compare_heads(arguments)
    columns = {
        "implementation": "{implementation}",
        "form": "{form}",
        "heads": "{heads}",
        "time": "{ratio:.2f} ({ratio_low:.2f}-{ratio_high:.2f})",
        "peak MiB": "{peak_mib:.0f}",
        "peak": "{peak_ratio:.2f}",
    }
    if arguments.out:
        write_csv(arguments.out, rows, remark("torch", "transformers"))
    show(rows, arguments.json, "A step relative to next-token prediction", columns)
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
