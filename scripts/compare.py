"""Compare runs by their records: python scripts/compare.py RUN RUN ..."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("compare"))
