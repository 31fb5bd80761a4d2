"""Does training wait for W&B? Speed with and without it: python scripts/benchmark_tracking.py."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.training:main_tracking"))
