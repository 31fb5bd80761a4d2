"""Copy the record of a finished run into results/runs: `make publish RUN=<run id>`."""

import argparse
import sys
from pathlib import Path

from ntl.config import UserError
from ntl.results import publish_runs

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run id, or the folder of a run")
    parser.add_argument("--outputs", type=Path, default=ROOT / "outputs", help="where the run folders are")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "runs", help="where published records are")
    arguments = parser.parse_args()
    try:
        for path in publish_runs(arguments.runs, arguments.outputs, arguments.out):
            print(path)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
