"""What masking the input adds to the time of a training step: python scripts/benchmark_mask.py --out FILE."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("benchmark-mask"))
