"""Does training wait for W&B? Speed with and without it: python scripts/benchmark_tracking.py."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("benchmark-tracking"))
