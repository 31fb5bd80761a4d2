"""``make tables``: every table, the page ``results/README.md`` and the results in README, from run records alone."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ntl.config.cli import Parser
from ntl.config.folders import RESULTS, ROOT
from ntl.results.build import build_table
from ntl.results.claims import judge_claims, load_claims
from ntl.results.load import check_folders, load_records
from ntl.results.pages import readme_results, results_page, with_results
from ntl.results.publish import write_tables
from ntl.results.render import terminal
from ntl.results.render.csv import cells
from ntl.results.spec import load_table_spec, table_names
from ntl.results.table import Table
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import write_text

OUTPUTS, RUNS, TABLES = ROOT / "outputs", RESULTS / "runs", RESULTS / "tables"
PAGE, README = RESULTS / "README.md", ROOT / "README.md"


def main(argv: Sequence[str] | None = None) -> None:
    """Rebuild tables from run records alone. UserError: an unknown table or scale, a folder that does not exist."""
    parser = Parser(description="Rebuild the tables from run records alone: `make tables`.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(table_names())}")
    add = parser.add_argument
    add("--records", type=Path, nargs="+", metavar="DIR", help="folders of records (default: results/runs outputs)")
    add("--scale", help="tiny, hour, small or paper (default: every scale of a table)")
    add("--out", type=Path, default=TABLES, metavar="DIR", help="default: results/tables")
    add("--pages", action="store_true", help="write results/README.md and the results in README.md, too")
    add("--json", action="store_true", help="print the cells as JSON instead of tables")
    arguments = parser.parse_args(argv)
    if arguments.pages and (arguments.names or arguments.scale):
        raise UserError("--pages: they say what all tables show; leave out the names and --scale.")
    tables = compute_tables(arguments.names, arguments.scale, arguments.records)
    texts = pages(tables) if arguments.pages else {}  # before anything is written
    write_tables(tables, arguments.out)
    for path, text in texts.items():
        write_text(path, text)
    if arguments.json:
        print(json.dumps([cell for table in tables for cell in cells(table)], indent=1))
    else:
        _show(tables, arguments.out)


def pages(tables: Sequence[Table]) -> dict[Path, str]:
    """The texts of ``PAGE`` and ``README`` by their paths, for all tables. UserError: README has no place for them."""
    with one_line_errors("read", README):
        readme = README.read_text(encoding="utf-8")
    claims = judge_claims(load_claims(known=[table.spec for table in tables]), tables)
    return {PAGE: results_page(claims, tables), README: with_results(readme, readme_results(claims, tables), README)}


def compute_tables(names: Sequence[str], scale: str | None, folders: Sequence[Path] | None) -> list[Table]:
    """The tables of these names (none: all) at this scale (None: each of theirs) from the records in ``folders``."""
    specs = [load_table_spec(name) for name in names or table_names()]
    pairs = [(spec, each) for spec in specs for each in spec.scales if scale in (None, each)]
    if not pairs:
        known = dict.fromkeys(each for spec in specs for each in spec.scales)
        raise UserError(f"no table has the scale {scale!r}: choose from {', '.join(known)}")
    records = load_records(check_folders(folders) if folders else [RUNS, OUTPUTS])
    return [build_table(spec, records, each) for spec, each in pairs]


def _show(tables: Sequence[Table], folder: Path) -> None:
    console = Console()
    for table in tables:
        if table.num_records:
            console.out(terminal.render(table, console), highlight=False, end="")
        else:
            console.print(f"{table.name}, scale={table.scale}: no record yet", markup=False)
    console.print(f"Written to {folder}", markup=False)
