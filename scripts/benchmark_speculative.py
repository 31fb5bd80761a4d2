"""Decoding with drafts against plain greedy decoding: python scripts/benchmark_speculative.py --out FILE."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.speculative:main"))
