"""Parameters and memory of a model, without its weights: python scripts/estimate.py model=gpt2_small [--json]."""

import sys

from ntl.config.report import report
from ntl.training.estimate import main

if __name__ == "__main__":
    sys.exit(report(main))
