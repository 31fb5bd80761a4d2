"""Decoding with the drafts of a model's heads against greedy decoding: python scripts/benchmark_decoding.py FOLDER."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.benchmarks.timing import add_options, show
from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json a list of rows. UserError for a wrong setting."""
    parser = Parser(description="Decoding with the drafts of heads against greedy decoding.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a model with heads, and its tokenizer")
    parser.add_argument("--variant", default="independent", help="of their parallel kind (default: %(default)s)")
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 2], metavar="N", help="heads; 1: no drafts")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], metavar="N")
    what = 'JSON lines with a "question" (default: %(default)s)'
    parser.add_argument("--questions", type=Path, default=Path("data/gsm8k/test.jsonl"), metavar="FILE", help=what)
    parser.add_argument("--count", type=int, default=16, help="number of questions (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="limit of an answer (default: %(default)s)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64", "bfloat16"))
    add_options(parser, rounds=3)
    arguments = parser.parse_args(argv)
    # Imported here: the command has its help at once.
    from ntl.benchmarks.decoding import compare_decoding

    show(compare_decoding(arguments), arguments, "Drafts of heads, and transformers' greedy decoding")
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
