"""Speed and memory of tokenizing: python scripts/benchmark_data.py --tokenizer FOLDER."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report

SIZES = [10_000, 100_000, 1_000_000, 10_000_000]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table and write it; UserError for bad input."""
    from ntl.benchmarks.data import compare_stages
    from ntl.benchmarks.timing import show

    parser = Parser(description=__doc__)
    parser.add_argument("--pairs", type=int, nargs="+", default=SIZES, help="sizes (default: 10^4 to 10^7)")
    parser.add_argument("--tokenizer", required=True, help="folder with T5's spiece.model, or a tokenizer.json")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), help="0.5 KB of disk a pair")
    parser.add_argument("--out", type=Path, help="write a CSV here, each stage as it is known")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of a table")
    arguments = parser.parse_args(argv)
    rows = compare_stages(arguments.pairs, arguments.tokenizer, arguments.scratch)
    show(rows, arguments, "Tokenizing", "tokenizers", "datasets", "pyarrow", "numpy")
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
