"""Decode the newest whole checkpoint of a run again and score it: python scripts/predict.py RUN [KEY=VALUE ...]."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("predict"))
