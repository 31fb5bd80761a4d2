"""Rebuild the figures from run records alone: `make figures`."""

import sys

from ntl.config.report import report
from ntl.results.figures.command import main

if __name__ == "__main__":
    sys.exit(report(main))
