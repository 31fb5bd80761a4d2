"""Time and memory of multi-token prediction by number of heads: python scripts/benchmark_mtp.py --out FILE."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("benchmark-mtp"))
