"""Rebuild the tables from run records alone: `make tables`."""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from ntl.config import UserError
from ntl.config.table import load_table_spec, table_names
from ntl.results import build_table, load_records
from ntl.results.publish import write_index, write_tables

ROOT = Path(__file__).resolve().parents[1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(table_names())}")
    parser.add_argument(
        "--records",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="folders of records (default: results/runs outputs)",
    )
    parser.add_argument("--scale", help="tiny, small or paper (default: every scale of a table)")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "tables", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print the cells as JSON instead of tables")
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    specs = [load_table_spec(name) for name in arguments.names or table_names()]
    for folder in arguments.records or ():
        if not folder.is_dir():
            raise UserError(f"--records {folder}: no such folder")
    records = load_records(arguments.records or [ROOT / "results" / "runs", ROOT / "outputs"])
    pairs = [(spec, scale) for spec in specs for scale in spec.scales if arguments.scale in (None, scale)]
    if not pairs:
        known = dict.fromkeys(scale for spec in specs for scale in spec.scales)
        raise UserError(f"no table has the scale {arguments.scale!r}: choose from {', '.join(known)}")
    tables = [build_table(spec, records, scale) for spec, scale in pairs]
    write_tables(tables, arguments.out)
    if not arguments.names and arguments.scale is None:
        write_index(tables, arguments.out)
    if arguments.json:
        print(json.dumps([cell for table in tables for cell in table.cells()], indent=1))
        return
    console = Console()
    for table in tables:
        if table.num_records:
            console.print(table.rich())
        else:
            console.print(f"{table.name}, scale={table.scale}: no record yet", markup=False)
    console.print(f"Written to {arguments.out}", markup=False)


def main() -> int:
    try:
        run(parse())
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
