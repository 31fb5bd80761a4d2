"""Recompute the metrics of a run from its predictions.jsonl: python scripts/evaluate.py RUN [--json]."""

import sys

from ntl.config.report import report

if __name__ == "__main__":
    sys.exit(report("ntl.evaluation.command:main"))
