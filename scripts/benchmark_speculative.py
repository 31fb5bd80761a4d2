"""Decoding with drafts against plain greedy decoding: python scripts/benchmark_speculative.py --out FILE."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("benchmark-speculative"))
