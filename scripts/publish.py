"""Copy the record of a finished run into results/runs: `make publish RUN=<run id>`."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.launch.publish:main"))
