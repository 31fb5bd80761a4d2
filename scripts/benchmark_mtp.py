"""Time and memory of multi-token prediction by number of heads: python scripts/benchmark_mtp.py --out FILE."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.mtp:main"))
