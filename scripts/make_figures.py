"""Rebuild the figures from run records alone: `make figures`."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("figures"))
