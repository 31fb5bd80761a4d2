"""Time and memory of every loss against cross-entropy: python scripts/benchmark_losses.py --out FILE."""

import sys

from ntl.config.report import report
from ntl.training.loss_benchmark import main

if __name__ == "__main__":
    sys.exit(report(main))
