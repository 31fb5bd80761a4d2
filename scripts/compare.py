"""Compare runs by their records: python scripts/compare.py RUN RUN ..."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.results.compare_runs:main", extra="report"))
