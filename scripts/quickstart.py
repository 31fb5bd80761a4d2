"""Train CE, the control and NTL-WAS on two small tasks and print the table: `make quickstart`."""

import sys

from ntl.config.report import report
from ntl.launch.quickstart import main

if __name__ == "__main__":
    codes: list[int] = []
    sys.exit(report(lambda: codes.append(main())) or codes[0])
