"""The losses of the paper's Figures 1b and 2 as two small CSV files: python scripts/loss_curves.py."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> None:
    """Write both tables, from which `make figures` draws without torch."""
    from ntl.benchmarks.loss_curves import FOLDER, PAPERS, by_digit, by_mass

    parser = Parser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR")
    parser.add_argument("--losses", nargs="+", default=list(PAPERS), metavar="LOSS", help="names in config/loss")
    chosen = parser.parse_args(argv)
    folder, losses = chosen.out, chosen.losses
    tables = {"losses_by_digit": by_digit(losses), "losses_by_mass": by_mass(names=losses)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(report(main))
