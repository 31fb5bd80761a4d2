"""Build the HTML page of tables, figures, runs and the loss explorer: `make report`."""

import sys

from ntl.config.cli import report

if __name__ == "__main__":
    sys.exit(report("ntl.results.report.make_report:main", extra="report"))
