"""Write a model card for a finished run and upload its checkpoint: python scripts/push.py RUN --to owner/name."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("push"))
