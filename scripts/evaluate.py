"""Recompute the metrics of a run from its predictions.jsonl: python scripts/evaluate.py RUN [--json]."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("evaluate"))
