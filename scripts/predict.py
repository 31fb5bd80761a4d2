"""Decode test splits again, or answer questions: python scripts/predict.py RUN [QUESTION] [KEY=VALUE ...]."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("predict"))
