"""Recompute the metrics of a run from its predictions.jsonl: python scripts/evaluate.py RUN [--json]."""

import sys

from ntl.config import UserError
from ntl.evaluation.command import main

if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
