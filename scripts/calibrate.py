"""How well a run's distribution over digits is calibrated: python scripts/calibrate.py RUN [RUN ...] [--json]."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each run and split; with ``--json``, print {run: {split: scores}} instead."""
    parser = Parser(description=__doc__)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folder, or the id of a run under --outputs")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(argv)
    # Importing torch takes seconds, and the command has its help at once.
    from ntl.decoding.calibration import COLUMNS, calibrate
    from ntl.results.record import find_run

    by_run = {run: calibrate(find_run(run, chosen.outputs)) for run in chosen.runs}
    if chosen.json:
        print(json.dumps(by_run, indent=1))
        return 0
    for run, splits in by_run.items():
        for split, scores in splits.items():
            print(f"{run}  {split}  " + "  ".join(f"{name} {scores[name]:.5g}" for name in COLUMNS))
    return 0


if __name__ == "__main__":
    sys.exit(report(main))
