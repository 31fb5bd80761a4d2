"""``make tables``: every table, the page of claims and the results in other pages, from run records alone."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ntl.config.cli import Parser
from ntl.config.folders import RESULTS, ROOT
from ntl.results.build import build_table
from ntl.results.claims import BENCHMARKS, judge_claims, load_claims
from ntl.results.load import check_folders, load_records
from ntl.results.marks import fill
from ntl.results.publish import claims_list, claims_page, replace_between, write_index, write_tables
from ntl.results.render import terminal
from ntl.results.render.csv import cells
from ntl.results.spec import load_table_spec, table_names
from ntl.results.table import Table
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import write_text

FINDINGS = "findings"
OUTPUTS, RUNS, TABLES = ROOT / "outputs", RESULTS / "runs", RESULTS / "tables"


def main(argv: Sequence[str] | None = None) -> None:
    """Rebuild tables from run records alone. UserError: an unknown table or scale, a folder that does not exist."""
    parser = Parser(description="Rebuild the tables from run records alone: `make tables`.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(table_names())}")
    add = parser.add_argument
    add("--records", type=Path, nargs="+", metavar="DIR", help="folders of records (default: results/runs outputs)")
    add("--scale", help="tiny, hour, small or paper (default: every scale of a table)")
    place = "default: results/tables; claims.md goes beside the folder"
    add("--out", type=Path, default=TABLES, metavar="DIR", help=place)
    pages = "pages whose results stand between marks; the first gets the verdict on every claim"
    add("--readme", type=Path, nargs="+", default=[], metavar="PAGE", help=pages)
    add("--json", action="store_true", help="print the cells as JSON instead of tables")
    arguments = parser.parse_args(argv)
    every = not arguments.names and arguments.scale is None
    if arguments.readme and not every:
        raise UserError("--readme: it gets what all tables show; leave out the names and --scale.")
    if every and not BENCHMARKS.is_dir():
        example = f"name tables, such as {table_names()[0]}."
        raise UserError(f"{BENCHMARKS}: no such folder, and the page of claims needs it; {example}")
    tables = compute_tables(arguments.names, arguments.scale, arguments.records)
    texts = _pages(tables, arguments.out, arguments.readme) if every else {}  # before anything is written
    write_tables(tables, arguments.out)
    if every:
        write_index(tables, arguments.out)  # an index of some tables would hide the others
    for path, text in texts.items():
        write_text(path, text)
    if arguments.json:
        print(json.dumps([cell for table in tables for cell in cells(table)], indent=1))
    else:
        _show(tables, arguments.out)


def _pages(tables: Sequence[Table], out: Path, readme: Sequence[Path]) -> dict[Path, str]:
    """The page of claims, and every page of ``readme`` with its results."""

    def link(path: Path, page: Path) -> str:
        return Path(os.path.relpath(path, page.parent)).as_posix()

    target = out.parent / "claims.md"
    claims = judge_claims(load_claims(known=[table.spec for table in tables]), tables, out.name)
    texts = {target: claims_page(claims)}
    for number, path in enumerate(readme):
        with one_line_errors("read", path):
            text = path.read_text(encoding="utf-8")
        if number == 0:
            text = replace_between(text, FINDINGS, claims_list(claims, link(target, path)), path)
        texts[path] = fill(text, path, tables, link(out, path))
    return texts


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
