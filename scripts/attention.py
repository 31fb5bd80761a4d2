"""What a trained decoder attends to, masked tokens and the answer: python scripts/attention.py RUN."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("attention"))
