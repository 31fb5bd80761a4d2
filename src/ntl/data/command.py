"""``scripts/prepare_data.py``: make the prepared files of data sets, or check them."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ntl.config import UserError, build, compose
from ntl.config.composition import choices

EXAMPLES = """examples:
  prepare_data.py multiplication                          the paper's sizes
  prepare_data.py multiplication scale=tiny               what train.py dataset=multiplication scale=tiny reads
  prepare_data.py arithmetic dataset.test_rows=1000       a setting of its own
  prepare_data.py all --verify                            check every sha256 of what is there
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare and report; UserError for bad input."""
    parser = argparse.ArgumentParser(
        prog="prepare_data.py",
        description="Prepare data sets. Files already under the data folder or NTL_DATA_DIR come first, then the "
        "official release, then the original generator. What is whole is left alone.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = choices("dataset")
    parser.add_argument(
        "words",
        metavar="DATASET|KEY=VALUE",
        nargs="+",
        help=f"all, or some of {', '.join(names)}; settings as for train.py (default: scale=paper)",
    )
    parser.add_argument("--data-dir", type=Path, help="where to write (default: data)")
    parser.add_argument("--verify", action="store_true", help="check every sha256, not only the sizes")
    parser.add_argument("--no-download", action="store_true", help="do not ask for the official release (2.2 GiB)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_intermixed_args(argv)
    overrides = [word for word in arguments.words if "=" in word]
    chosen = [word for word in arguments.words if "=" not in word]
    if not chosen:
        raise UserError(f"no data set named; choose all, or some of {', '.join(names)}.")
    reports = {}
    for name in names if "all" in chosen else dict.fromkeys(chosen):
        reports[name] = _prepare(name, overrides, arguments)
    if arguments.json:
        print(json.dumps(reports, indent=1))
    else:
        _print_table(reports)
    return 0


def _prepare(name: str, overrides: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    scale = [] if any(word.startswith("scale=") for word in overrides) else ["scale=paper"]
    config = compose([f"dataset={name}", *scale, *overrides])
    dataset = build(config.dataset)
    data_dir = arguments.data_dir or Path(config.data_dir)
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        print(line, file=sys.stderr, flush=True)

    started = time.monotonic()
    folder = dataset.prepare(data_dir, log, verify=arguments.verify, download=not arguments.no_download)
    manifest = dataset.manifest(data_dir)
    return {
        "folder": str(folder),
        "done": "prepared" if lines else "verified" if arguments.verify else "already prepared",
        "seconds": round(time.monotonic() - started, 2),
        "source": manifest["source"],
        "splits": {
            split: {key: entry[key] for key in ("file", "rows", "sha256")}
            for split, entry in manifest["splits"].items()
        },
    }


def _print_table(reports: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("data set", "split", "rows", "sha256"):
        table.add_column(column, justify="right" if column == "rows" else "left")
    for name, report in reports.items():
        for split, entry in report["splits"].items():
            table.add_row(name, split, str(entry["rows"]), entry["sha256"][:16])
    console = Console()
    console.print(table)
    for name, report in reports.items():
        line = f"{name}: {report['done']} in {report['seconds']} s, {report['source']['kind']}: {report['folder']}"
        console.print(line, soft_wrap=True, highlight=False)
