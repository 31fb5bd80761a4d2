"""Print the worst answers of a run with their questions: python scripts/errors.py RUN."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.training.errors:main"))
