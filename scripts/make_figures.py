"""Rebuild the figures from run records alone: `make figures`."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.results.figures.make_figures:main"))
