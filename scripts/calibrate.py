"""How far a run's distribution over digits is to be believed: python scripts/calibrate.py RUN [RUN ...] [--json]."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.training.calibration:main"))
