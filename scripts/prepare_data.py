"""Prepare data sets: python scripts/prepare_data.py DATASET [DATASET ...] [KEY=VALUE ...] [--help]."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntl.config.cli import BAD_INPUT, DONE, Parser, report
from ntl.config.folders import choices
from ntl.system.errors import UserError, redact

if TYPE_CHECKING:
    from ntl.config import Config

ALL = "all"
EXAMPLES = """examples:
  prepare_data.py multiplication                          the paper's sizes
  prepare_data.py multiplication scale=tiny               what train.py dataset=multiplication scale=tiny reads
  prepare_data.py arithmetic dataset.test_rows=1000       a setting of its own
  prepare_data.py file dataset.path=my.jsonl              a file of your own
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, also where a file that cannot be downloaded is missing; UserError for bad input."""
    parser = Parser(
        description="Prepare data sets. Files already under the data folder or NTL_DATA_DIR come first, then the "
        "official release, then the original generator. What is whole is left alone.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(choices("dataset"))
    parser.add_argument(
        "words",
        metavar="DATASET|KEY=VALUE",
        nargs="+",
        help=f"all, or some of {names}; settings as for train.py (default: scale=paper)",
    )
    parser.add_argument("--data-dir", type=Path, help="where to write (default: data)")
    parser.add_argument("--no-download", action="store_true", help="do not ask for official releases (up to 2.2 GiB)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_intermixed_args(argv)
    overrides = [word for word in arguments.words if "=" in word]
    chosen = [word for word in arguments.words if "=" not in word]
    if not chosen:
        raise UserError(f"no data set named; choose all, or some of {names}.")
    scale = [] if any(word.startswith("scale=") for word in overrides) else ["scale=paper"]
    from ntl.config import compose
    from ntl.config.composition import known_datasets
    from ntl.data.raw import Missing

    # Composed first: a mistake in a setting shows before anything is downloaded.
    wanted = known_datasets() if ALL in chosen else dict.fromkeys(chosen)
    configs = {name: compose([f"dataset={name}", *scale, *overrides]) for name in wanted}
    reports: dict[str, dict[str, Any]] = {}
    failures: dict[str, UserError] = {}
    for name, config in configs.items():
        try:
            reports[name] = prepare(config, arguments.data_dir, download=not arguments.no_download)
        except UserError as error:
            if ALL not in chosen:
                raise
            error.args = (redact(str(error)),)
            print(f"{name}: {error}", file=sys.stderr)
            failures[name] = error
    if arguments.json:
        print(json.dumps({**reports, **{name: {"error": str(why)} for name, why in failures.items()}}, indent=1))
    else:
        print_table(reports, failures)
    return DONE if all(isinstance(error, Missing) for error in failures.values()) else BAD_INPUT


def prepare(config: "Config", data_dir: Path | None, *, download: bool) -> dict[str, Any]:
    """Prepare a data set, or check what is prepared; what was done, by split."""
    from ntl.data.prepared import Prepared

    prepared = Prepared(config.dataset, data_dir or config.data_dir)
    before, started = prepared.find(), time.monotonic()
    age = before.stat().st_ino if before else None
    folder = prepared.prepare(download=download)
    manifest = prepared.manifest
    for split in manifest["splits"]:
        prepared.rows(split)  # which checks its sha256
    return {
        "folder": str(folder),
        "done": "already prepared" if folder == before and folder.stat().st_ino == age else "prepared",
        "seconds": round(time.monotonic() - started, 2),
        "source": manifest["source"],
        "splits": {
            split: {key: entry[key] for key in ("file", "rows", "sha256")}
            for split, entry in manifest["splits"].items()
        },
    }


def print_table(reports: dict[str, dict[str, Any]], failures: dict[str, UserError]) -> None:
    from rich.console import Console
    from rich.table import Table

    table, lines = Table(), []
    for column in ("data set", "split", "rows", "sha256"):
        table.add_column(column, justify="right" if column == "rows" else "left")
    for name, about in reports.items():
        for split, entry in about["splits"].items():
            table.add_row(name, split, str(entry["rows"]), entry["sha256"][:16])
        lines.append(f"{name}: {about['done']} in {about['seconds']} s, {about['source']['kind']}: {about['folder']}")
    for name, error in failures.items():
        table.add_row(name, "", "not prepared", "")
        lines.append(f"{name}: {error}")
    console = Console()
    console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(report(main))
