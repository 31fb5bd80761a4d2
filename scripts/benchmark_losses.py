"""Time and memory of every loss against cross-entropy: python scripts/benchmark_losses.py --out FILE."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("benchmark-losses"))
