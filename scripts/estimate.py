"""Parameters and memory of a model, without its weights: python scripts/estimate.py model=gpt2_small [--json]."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.costs.estimate:main"))
