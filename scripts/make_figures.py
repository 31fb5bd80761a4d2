"""Rebuild the figures from run records alone: `make figures`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS


def main(argv: Sequence[str] | None = None) -> None:
    """Rebuild the figures from records and committed benchmarks alone. UserError: a folder that does not exist."""
    from ntl.results.record import check_folders, load_records

    parser = Parser(description=__doc__)
    parser.add_argument("--records", type=Path, nargs="+", default=[RESULTS / "runs"], metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS / "figures", metavar="DIR")
    chosen = parser.parse_args(argv)
    from ntl.results.figures.functions import draw_all  # matplotlib

    for path in draw_all(load_records(check_folders(chosen.records)), RESULTS, chosen.out):
        print(path)


if __name__ == "__main__":
    sys.exit(report(main, extra="report"))
