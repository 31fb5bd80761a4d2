"""Generation throughput, ours against a bare loop of model.generate: python scripts/benchmark_decoding.py."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("benchmark-decoding"))
