"""Train a table's missing runs, then print it: python scripts/reproduce.py table=2 scale=tiny."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.launch.reproduce:main", "interrupted; rerun the same command to resume."))
