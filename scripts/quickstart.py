"""Train CE, the control and NTL-WAS on two small tasks and print the table: `make quickstart`."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.launch.reproduce:quickstart", "interrupted; the same command goes on where it stopped."))
