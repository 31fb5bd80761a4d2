"""How far a run's distribution over digits is to be believed: python scripts/calibrate.py RUN [RUN ...] [--json]."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("calibrate"))
