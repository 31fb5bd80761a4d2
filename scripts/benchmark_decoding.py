"""Generation throughput, ours against a bare loop of model.generate: python scripts/benchmark_decoding.py."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.decoding:main"))
