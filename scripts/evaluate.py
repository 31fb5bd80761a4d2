"""Recompute the metrics of a run from its predictions.jsonl: python scripts/evaluate.py RUN [--json]."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.evaluation.evaluate:main"))
