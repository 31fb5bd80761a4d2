"""Speed and memory of preparing, tokenizing and reading: python scripts/benchmark_data.py --tokenizer FOLDER."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.benchmarks.data:main"))
