"""Copy the record of a finished run into results/runs: `make publish RUN=<run id>`."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("publish"))
