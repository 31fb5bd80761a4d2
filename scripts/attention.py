"""What a trained decoder attends to, masked tokens and the answer: python scripts/attention.py RUN."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.training.attention:main"))
