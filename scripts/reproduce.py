"""Train the runs that a table still lacks, and print it: python scripts/reproduce.py --table NAME --scale SCALE."""

import sys

from ntl.config.report import report
from ntl.launch.reproduce import main

if __name__ == "__main__":
    codes: list[int] = []
    sys.exit(report(lambda: codes.append(main())) or codes[0])
