"""Speed and time to the first step, ours against a bare Seq2SeqTrainer: python scripts/benchmark_training.py."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("benchmark-training"))
