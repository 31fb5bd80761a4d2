"""Rebuild the tables from run records alone: `make tables`, or python scripts/make_tables.py [NAME ...] [--help]."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("tables"))
