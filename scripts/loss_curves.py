"""The losses of the paper's Figures 1b and 2 as two small CSV files: python scripts/loss_curves.py."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.loss_curves:main"))
