"""Write a model card for a finished run and upload its checkpoint: python scripts/push.py RUN --to owner/name."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.training.push:main"))
