"""Prepare data sets: python scripts/prepare_data.py DATASET [DATASET ...] [KEY=VALUE ...] [--help]."""

import sys

from ntl.config.report import report
from ntl.data.command import main

if __name__ == "__main__":
    sys.exit(report(main))
