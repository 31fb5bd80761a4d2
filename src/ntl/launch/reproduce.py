"""Train the runs that a table still lacks, and print it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ntl.config.table import table_names
from ntl.launch.table import complete_table

PUBLISHED = Path("results/runs")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when a run failed. Published records count: what they hold is not trained again."""
    parser = argparse.ArgumentParser(prog="reproduce.py", description=__doc__)
    parser.add_argument("--table", default="quickstart", metavar="NAME", help=f"one of {', '.join(table_names())}")
    parser.add_argument("--scale", default="tiny", help="tiny, small or paper (default: tiny)")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), metavar="DIR", help="default: outputs")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one a core)")
    chosen = parser.parse_args(argv)
    records = [PUBLISHED, chosen.outputs]
    return complete_table(
        chosen.table, chosen.scale, records=records, outputs=chosen.outputs, workers=chosen.workers
    ).exit_code
