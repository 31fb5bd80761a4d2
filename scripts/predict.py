"""Decode the newest whole checkpoint of a run again and score it: python scripts/predict.py RUN [KEY=VALUE ...]."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.training.predictor:main"))
