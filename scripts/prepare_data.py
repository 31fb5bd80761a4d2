"""Prepare data sets: python scripts/prepare_data.py DATASET [DATASET ...] [KEY=VALUE ...] [--help]."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("prepare"))
