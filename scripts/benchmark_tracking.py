"""Does training wait for W&B? Speed while its service misbehaves: python scripts/benchmark_tracking.py."""

import sys

from ntl.config.report import report
from ntl.training.tracking_benchmark import main

if __name__ == "__main__":
    sys.exit(report(main))
