"""Train CE, the control and NTL-WAS on two small tasks and print the table: `make quickstart`."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("quickstart"))
