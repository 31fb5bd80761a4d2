"""Files: tables into ``results/tables``, and chosen records into ``results/runs``."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ntl.config import UserError
from ntl.config.errors import one_line_errors
from ntl.results.find import find_run
from ntl.results.load import RECORD
from ntl.results.record import RunRecord, read_record, write_record
from ntl.results.table import Table

SUFFIXES = ("md", "tex", "csv")


def write_text(path: Path, text: str) -> None:
    """Write atomically, and not at all where the file has this text already. UserError: it cannot be written."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with one_line_errors("write", path):
        if path.exists() and path.read_bytes() == text.encode():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(text.encode())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_tables(tables: Sequence[Table], folder: Path | str) -> list[Path]:
    """``<name>_<scale>.md``, ``.tex`` and ``.csv`` for each table. The same records give the same bytes."""
    paths = []
    for table in tables:
        for suffix, text in zip(SUFFIXES, (table.markdown(), table.latex(), table.csv()), strict=True):
            paths.append(Path(folder) / f"{table.name}_{table.scale}.{suffix}")
            write_text(paths[-1], text)
    return paths


def write_index(tables: Sequence[Table], folder: Path | str) -> Path:
    """``README.md``: a list of all tables with their number of records, then those that have any, in full."""
    lines = ["# Tables", "", "Computed from run records by `make tables`; never edited by hand.", ""]
    lines += ["| table | scale | records | missing runs | files |", "| --- | --- | ---: | ---: | --- |"]
    for table in tables:
        stem = f"{table.name}_{table.scale}"
        missing = sum(len(row.missing) for block in table.blocks for row in block.rows)
        files = " ".join(f"[{suffix}]({stem}.{suffix})" for suffix in SUFFIXES)
        lines.append(f"| {table.name} | {table.scale} | {table.num_records} | {missing} | {files} |")
    full = [table.markdown() for table in tables if table.num_records]
    path = Path(folder) / "README.md"
    write_text(path, "\n".join([*lines, "", *full]))
    return path


def find_record(run: str, outputs: Path) -> Path:
    """The record of a run named by its id or its folder. UserError where there is none."""
    folder = find_run(run, outputs)
    if not (folder / RECORD).is_file():
        raise UserError(f"{folder} has no {RECORD}: the run has not ended; resume it with the same command")
    return folder / RECORD


def publish_runs(
    runs: Iterable[str], outputs: Path | str = "outputs", target: Path | str = "results/runs"
) -> list[Path]:
    """Copy the records of finished runs, without predictions, to ``<target>/<id>.json``; all are checked first.

    UserError: a different record is there under that id (published results are never replaced in silence), or the
    folder cannot be written to.
    """
    records = [read_record(find_record(run, Path(outputs))) for run in runs]
    with one_line_errors("publish to", Path(target)):
        return [write_record(Path(target) / f"{record.id}.json", record) for record in records]


def loaded_weights(record: RunRecord) -> str:
    """What a run was trained from where weights were loaded, as its model's name does not say it; else ""."""
    weights = record.model.get("weights")
    if weights is None:
        return ""
    named = [f"{name} {text}" for name, text in weights.items()]
    shape = [f"{name} {text}" for name, text in record.model.get("shape", {}).items()]
    parameters = f"{record.model.get('parameters', 0):,} parameters"
    return f"from weights with {', '.join([*named, parameters, *shape])}"
