"""The losses of the paper's Figures 1b and 2 as two small CSV files: python scripts/loss_curves.py."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("loss-curves"))
