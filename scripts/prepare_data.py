"""Prepare data sets: python scripts/prepare_data.py DATASET [DATASET ...] [KEY=VALUE ...] [--help]."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.data.prepare_command:main"))
