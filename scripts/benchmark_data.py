"""Speed and memory of preparing, tokenizing and reading: python scripts/benchmark_data.py --tokenizer FOLDER."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("benchmark-data"))
