"""Train, decode, score and record one run; see ``python train.py --help``."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("train"))
