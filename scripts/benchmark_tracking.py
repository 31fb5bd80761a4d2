"""Does training wait for W&B? Speed while its service misbehaves: python scripts/benchmark_tracking.py."""

import sys

from ntl.config.report import report

if __name__ == "__main__":
    sys.exit(report("ntl.training.tracking_benchmark:main"))
