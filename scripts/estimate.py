"""Parameters and memory of a model, without its weights: python scripts/estimate.py model=gpt2_small [--json]."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("estimate"))
