"""Speed and memory of preparing and tokenizing: python scripts/benchmark_data.py --tokenizer FOLDER."""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a line a stage, and write the table; UserError for bad input."""
    from ntl.benchmarks.data import COLUMNS, SIZES, measure
    from ntl.benchmarks.timing import Row, remark, write_csv

    parser = Parser(description=__doc__)
    parser.add_argument("--pairs", type=int, nargs="+", default=list(SIZES), help="sizes (default: 10^4 to 10^7)")
    parser.add_argument("--tokenizer", required=True, help="folder with T5's spiece.model, or a tokenizer.json")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), help="0.5 KB of disk a pair")
    parser.add_argument("--out", type=Path, help="write a CSV here")
    parser.add_argument("--json", action="store_true", help="print one JSON object a stage")
    arguments = parser.parse_args(argv)
    rows: list[Row] = []

    def say(row: Row) -> None:
        rows.append(row)
        named = {name: row[name] for name in COLUMNS if name in row}
        print(json.dumps(named) if arguments.json else "  ".join(f"{k} {v}" for k, v in named.items()), flush=True)
        if arguments.out:
            write_csv(arguments.out, rows, remark("tokenizers", "datasets", "pyarrow", "numpy"), COLUMNS)

    for pairs in arguments.pairs:
        measure(pairs, arguments.tokenizer, arguments.scratch, say)
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
