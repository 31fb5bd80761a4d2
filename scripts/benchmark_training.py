"""Speed and time to the first step, ours against a bare Seq2SeqTrainer: python scripts/benchmark_training.py."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.training:main"))
