"""Print the worst answers of a run with their questions: python scripts/errors.py RUN."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("errors"))
