"""`make quickstart`: CE, the control and NTL-WAS on two small tasks, trained here and laid side by side."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ntl.launch.table import complete_tables


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when a run failed. Counts no published records: what is shown was trained here."""
    parser = argparse.ArgumentParser(prog="quickstart.py", description=__doc__)
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), metavar="DIR", help="default: outputs")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one a core)")
    chosen = parser.parse_args(argv)
    return complete_tables(
        ["quickstart"], "tiny", records=[chosen.outputs], outputs=chosen.outputs, workers=chosen.workers
    ).exit_code
