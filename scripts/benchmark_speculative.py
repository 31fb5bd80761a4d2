"""Decoding with drafts against plain greedy decoding: python scripts/benchmark_speculative.py --out FILE."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json a list of rows. UserError for a wrong setting."""
    parser = Parser(
        description="Decoding with drafts by heads against plain greedy decoding of the same model.",
        epilog="overhead: greedy decoding of a model of as many blocks, but 16 wide, against that of this one.",
    )
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], metavar="B", dest="batches")
    parser.add_argument("--kind", default="parallel", choices=("parallel", "sequential"))
    parser.add_argument("--vocab", type=int, default=256, help="tokens (default: 256)")
    parser.add_argument("--width", type=int, default=384, help="hidden size (default: 384)")
    parser.add_argument("--layers", type=int, default=8, help="blocks of the model without its heads (default: 8)")
    parser.add_argument("--length", type=int, default=16, help="longest prompt (default: 16)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer (default: 64)")
    parser.add_argument("--steps", type=int, default=120, help="of training (default: 120)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=5, help="turns, of which the median is given (default: 5)")
    parser.add_argument("--out", type=Path, help="also write the rows to this CSV file")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of a table")
    arguments = parser.parse_args(argv)
    # Imported here: the command has its help at once.
    from ntl.benchmarks.speculative import compare_drafts
    from ntl.benchmarks.timing import show

    rows = list(compare_drafts(arguments, say=lambda line: None if arguments.json else print(line, flush=True)))
    columns = {
        "batch": "{batch}",
        "heads": "{heads}",
        "tokens a forward pass": "{tokens_per_forward:.2f}",
        "times as fast": "{speedup:.2f} ({speedup_low:.2f}-{speedup_high:.2f})",
        "same answers": "{same_answers} of {batch}",
        "overhead": "{overhead:.2f}",
    }
    show(rows, arguments, "Drafts by heads against plain greedy decoding", columns)
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
