"""Prepare data sets, or check what is prepared: what ``scripts/prepare_data.py`` prints."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ntl.config import Config, build, compose
from ntl.config.composition import known_datasets
from ntl.data.prepared import Prepared
from ntl.system.errors import UserError
from ntl.system.secrets import redact

ALL = "all"


def prepare(
    names: Sequence[str],
    overrides: Sequence[str] = (),
    data_dir: Path | None = None,
    *,
    verify: bool = False,
    download: bool = True,
) -> tuple[dict[str, dict[str, Any]], dict[str, UserError]]:
    """Prepare data sets.

    Args:
        names: Data sets, or ``ALL``.
        overrides: Settings as for train.py; the scale is the paper's unless they name one.
        data_dir: Where to write; None: as the settings say.
        verify: Check every sha256, not only the sizes.
        download: Ask for official releases.

    Returns:
        By data set, what was done with its splits; and of ``ALL`` the errors of those that were not prepared.

    Raises:
        UserError: A mistake in a setting, or a data set that was named cannot be prepared.
    """
    scale = [] if any(word.startswith("scale=") for word in overrides) else ["scale=paper"]
    # Composed first: a mistake in a setting shows before anything is downloaded.
    wanted = known_datasets() if ALL in names else dict.fromkeys(names)
    configs = {name: compose([f"dataset={name}", *scale, *overrides]) for name in wanted}
    reports: dict[str, dict[str, Any]] = {}
    failures: dict[str, UserError] = {}
    for name, config in configs.items():
        try:
            reports[name] = _prepare(config, data_dir, verify, download)
        except UserError as error:
            if ALL not in names:
                raise
            error.args = (redact(str(error)),)
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failures[name] = error
    return reports, failures


def _prepare(config: Config, data_dir: Path | None, verify: bool, download: bool) -> dict[str, Any]:
    prepared = Prepared(build(config.dataset), data_dir or config.data_dir)
    before = prepared.find()
    age = before.stat().st_ino if before else None
    started = time.monotonic()

    def log(line: str) -> None:
        print(redact(line), file=sys.stderr, flush=True)

    folder = prepared.prepare(log, verify=verify, download=download)
    manifest = prepared.manifest
    untouched = "verified" if verify else "already prepared"
    return {
        "folder": str(folder),
        "done": untouched if folder == before and folder.stat().st_ino == age else "prepared",
        "seconds": round(time.monotonic() - started, 2),
        "source": manifest["source"],
        "missing": manifest.get("missing", {}),
        "splits": {
            split: {key: entry[key] for key in ("file", "rows", "sha256")}
            for split, entry in manifest["splits"].items()
        },
    }


def print_table(reports: dict[str, dict[str, Any]], failures: dict[str, UserError]) -> None:
    """Print what ``prepare`` gives."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("data set", "split", "rows", "sha256"):
        table.add_column(column, justify="right" if column == "rows" else "left")
    for name, report in reports.items():
        for split, entry in report["splits"].items():
            table.add_row(name, split, str(entry["rows"]), entry["sha256"][:16])
        for split in report["missing"]:
            table.add_row(name, split, "missing", "")
    for name in failures:
        table.add_row(name, "", "not prepared", "")
    console = Console()
    console.print(table)
    lines = []
    for name, report in reports.items():
        lines.append(
            f"{name}: {report['done']} in {report['seconds']} s, {report['source']['kind']}: {report['folder']}"
        )
        lines += [f"{name} has no {split} rows: {why}." for split, why in report["missing"].items()]
    for line in [*lines, *(f"{name}: {error}" for name, error in failures.items())]:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
