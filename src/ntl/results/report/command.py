"""``make report``: one HTML page of everything that the published records and figures can give."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ntl.results.load import existing, load_records
from ntl.results.report.figures import read_pictures
from ntl.results.report.page import render
from ntl.system.files import write_text

RESULTS = Path(__file__).resolve().parents[4] / "results"


def main(argv: Sequence[str] | None = None) -> None:
    """Write the page. UserError: a folder that does not exist, a figure that was not drawn."""
    parser = argparse.ArgumentParser(prog="make_report.py", description=__doc__)
    parser.add_argument("--records", type=Path, nargs="+", default=[RESULTS / "runs"], metavar="DIR")
    parser.add_argument("--figures", type=Path, default=RESULTS / "figures", metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS / "report.html", metavar="FILE")
    chosen = parser.parse_args(argv)
    write_text(chosen.out, render(load_records(existing(chosen.records)), read_pictures(chosen.figures)))
    print(chosen.out)
