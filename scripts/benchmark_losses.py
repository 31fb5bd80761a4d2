"""Time and memory of every loss against cross-entropy: python scripts/benchmark_losses.py --out FILE."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.losses:main"))
