"""Time and memory of optimizer steps: python scripts/benchmark_training.py bare loss=ce "objective=mtp loss=ce"."""

import sys
from collections.abc import Sequence

from ntl.benchmarks.timing import add_options, show
from ntl.config.cli import Parser, report
from ntl.system.errors import UserError


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each row of overrides, or JSON with ``--json``."""
    parser = Parser(description=__doc__)
    what = 'settings of train.py, or "bare" for a plain Seq2SeqTrainer; all are compared with the first'
    parser.add_argument("rows", nargs="*", default=["bare", "loss=ce", "loss=ntl_was"], metavar="ROW", help=what)
    parser.add_argument("--all", nargs="+", default=[], metavar="KEY=VALUE", help="settings for all rows")
    parser.add_argument("--steps", type=int, default=100, help="steps per round (default: %(default)s)")
    add_options(parser, rounds=5)
    chosen = parser.parse_args(argv)
    if chosen.steps < 3:
        raise UserError(f"--steps {chosen.steps}: at least 3 are measured")
    from ntl.benchmarks.training import compare

    rows = compare(chosen.rows, chosen.all, device=chosen.device, steps=chosen.steps, rounds=chosen.rounds)
    show(rows, chosen, f"A step over one of {chosen.rows[0]}")


if __name__ == "__main__":
    sys.exit(report(main))
