"""Rebuild the figures from run records alone: `make figures`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS
from ntl.system.errors import one_line_errors


def main(argv: Sequence[str] | None = None) -> None:
    """Rebuild the figures from records and committed benchmarks alone. UserError: a folder that does not exist."""
    from ntl.results.record import check_folders, load_records
    from ntl.system.files import write_text

    parser = Parser(description=__doc__)
    parser.add_argument("--records", type=Path, nargs="+", default=[RESULTS / "runs"], metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS / "figures", metavar="DIR")
    chosen = parser.parse_args(argv)
    from ntl.results.figures.style import draw_all, page, style, write  # matplotlib

    with style():
        drawings, missing = draw_all(load_records(check_folders(chosen.records)), RESULTS)
        with one_line_errors("draw into", chosen.out):
            for drawing in drawings:
                print(*write(drawing, chosen.out))
    write_text(chosen.out / "README.md", page(drawings, missing))


if __name__ == "__main__":
    sys.exit(report(main, extra="report"))
