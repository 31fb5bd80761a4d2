"""Rebuild the tables from run records alone: `make tables`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS, ROOT

OUTPUTS, RUNS, TABLES = ROOT / "outputs", RESULTS / "runs", RESULTS / "tables"
README = ROOT / "README.md"


def main(argv: Sequence[str] | None = None) -> None:
    """Rebuild tables from run records alone. UserError: an unknown table or scale, a folder that does not exist."""
    from rich.console import Console

    from ntl.results.record import check_folders, load_records
    from ntl.results.render import show, to_cells, write_tables
    from ntl.results.spec import table_names, table_spec
    from ntl.results.table import build_table
    from ntl.results.verdicts import pages
    from ntl.system.errors import UserError
    from ntl.system.files import write_text

    parser = Parser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(table_names())}")
    add = parser.add_argument
    add("--records", type=Path, nargs="+", metavar="DIR", help="folders of records (default: results/runs outputs)")
    add("--scale", help="one scale, such as tiny (default: every scale of a table)")
    add("--out", type=Path, default=TABLES, metavar="DIR", help="default: results/tables")
    add("--pages", action="store_true", help="write results/README.md, EVIDENCE.md and the results in README.md, too")
    add("--latex", action="store_true", help="write a .tex of each table, too")
    add("--json", action="store_true", help="print the cells as JSON instead of tables")
    chosen = parser.parse_args(argv)
    if chosen.pages and (chosen.names or chosen.scale):
        raise UserError("--pages: they say what all tables show; leave out the names and --scale.")
    folders = check_folders(chosen.records) if chosen.records else [RUNS, OUTPUTS]
    specs = [table_spec(name) for name in chosen.names or table_names()]
    scales = dict.fromkeys(scale for spec in specs for scale in spec.scales)
    if chosen.scale and chosen.scale not in scales:
        raise UserError(f"no table has the scale {chosen.scale!r}: choose from {', '.join(scales)}")
    records, shown = load_records(folders), [chosen.scale] if chosen.scale else scales
    tables = [build_table(spec, records, scale) for spec in specs for scale in spec.scales if scale in shown]
    texts = pages(tables, records, RESULTS, README) if chosen.pages else {}  # before anything is written
    write_tables(tables, chosen.out, chosen.latex)
    for path, text in texts.items():
        write_text(path, text)
    if chosen.json:
        print(json.dumps([cell for table in tables for cell in to_cells(table)], indent=1))
        return
    console = Console()
    for table in tables:
        if table.num_records:
            show(table, console)
        else:
            console.print(f"{table.spec.name}, scale={table.scale}: no record yet", markup=False)
    console.print(f"Written to {chosen.out}", markup=False)


if __name__ == "__main__":
    sys.exit(report(main, extra="report"))
