"""Generation throughput, ours against a bare loop of model.generate: python scripts/benchmark_decoding.py."""

import sys

from ntl.config.report import report
from ntl.training.decoding_benchmark import main

if __name__ == "__main__":
    sys.exit(report(main))
