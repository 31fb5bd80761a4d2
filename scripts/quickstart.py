"""Train CE, the control and NTL-WAS on two small tasks and print the table: `make quickstart`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when a run failed. Published records are ignored: what is shown was trained here."""
    parser = Parser(description=__doc__)
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), metavar="DIR", help="default: outputs")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one per core)")
    chosen = parser.parse_args(argv)
    from ntl.launch.table import complete_tables

    places = {"records": [chosen.outputs], "outputs": chosen.outputs}
    return complete_tables(["quickstart"], "tiny", **places, workers=chosen.workers).exit_code


if __name__ == "__main__":
    sys.exit(report(main, "interrupted; rerun the same command to resume."))
