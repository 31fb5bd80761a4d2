"""Train, decode, score and record one run; see ``python train.py --help``."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    again = "interrupted; the same command continues from the last checkpoint."
    sys.exit(report("ntl.training.train:main", again))
