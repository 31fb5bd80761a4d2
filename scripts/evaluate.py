"""Recompute the metrics of a run from its predictions.jsonl: python scripts/evaluate.py RUN [--json]."""

import sys

from ntl.config.report import report
from ntl.evaluation.command import main

if __name__ == "__main__":
    sys.exit(report(main))
