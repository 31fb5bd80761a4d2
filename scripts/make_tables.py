"""Rebuild the tables from run records alone: `make tables`, or python scripts/make_tables.py [NAME ...] [--help]."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.results.make_tables:main", extra="report"))
