"""Build the HTML page of tables, figures, runs and the loss explorer: `make report`."""

import sys

from ntl.cli import run

if __name__ == "__main__":
    sys.exit(run("report"))
