"""Decode test splits again, or answer questions: python scripts/predict.py RUN [QUESTION] [KEY=VALUE ...]."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.training.predictor:main"))
