"""What masking the input adds to the time of a training step: python scripts/benchmark_mask.py --out FILE."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.mask:main"))
