"""Decoding with the drafts of a model's heads against greedy decoding: python scripts/benchmark_decoding.py FOLDER.

With --search: the search of numbers against one that loses what it does not read.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.benchmarks.timing import add_options, show
from ntl.config.cli import Parser, report
from ntl.system.errors import UserError

# What only drafts, and what only searches, have a use for.
OF_DRAFTS, OF_SEARCHES = (
    ("variant", "heads", "questions", "tokens", "dtype"),
    ("num_beams", "reference", "samples", "reference_file"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json a list of rows. UserError for a wrong setting."""
    parser = Parser(description="Decoding with the drafts of heads against greedy decoding.")
    what = "a model with heads, and its tokenizer; for --search a run"
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=what)
    what = "compare searches of numbers instead, on test questions of a run"
    parser.add_argument("--search", action="store_true", help=what)
    parser.add_argument("--num-beams", type=int, default=100, metavar="N", help="of a search (default: %(default)s)")
    what = "of the search that errors are taken to (default: %(default)s)"
    parser.add_argument("--reference", type=int, default=30_000, metavar="N", help=what)
    what = "take errors to this many random answers of each question instead, of a decoder"
    parser.add_argument("--samples", type=int, default=0, metavar="N", help=what)
    what = "keep what errors are taken to in this file, question by question, and take from it what is there"
    parser.add_argument("--reference-file", type=Path, metavar="FILE", help=what)
    parser.add_argument("--variant", default="independent", help="of its parallel heads (default: %(default)s)")
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 2], metavar="N", help="1: without drafts")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], metavar="N")
    what = 'JSON lines with a "question" (default: %(default)s)'
    parser.add_argument("--questions", type=Path, default=Path("data/gsm8k/test.jsonl"), metavar="FILE", help=what)
    parser.add_argument("--count", type=int, default=16, help="of questions (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="of the longest answer (default: %(default)s)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64", "bfloat16"))
    add_options(parser, rounds=3)
    arguments = parser.parse_args(argv)
    for name in OF_DRAFTS if arguments.search else OF_SEARCHES:
        if getattr(arguments, name) != parser.get_default(name):
            raise UserError(f"--{name.replace('_', '-')}: {'not with' if arguments.search else 'only with'} --search")
    # Imported here: the command has its help at once.
    from ntl.benchmarks.decoding import compare_decoding, compare_searches

    rows = (compare_searches if arguments.search else compare_decoding)(arguments)
    title = "Drafts of heads, and transformers' greedy decoding"
    title = "Errors in % of the standard deviation; processor seconds an answer" if arguments.search else title
    show(rows, arguments, title)
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
