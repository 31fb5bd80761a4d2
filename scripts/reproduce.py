"""Train the runs that a table still lacks, and print it: python scripts/reproduce.py table=2 scale=tiny."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("reproduce"))
