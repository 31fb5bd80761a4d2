"""What is published: the files of tables, and chosen records."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ntl.results.load import RECORD, find_run
from ntl.results.record import PUBLISHED_ALONE, read_record, write_record
from ntl.results.render import csv, latex, markdown
from ntl.results.table import Table
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import write_text

# The files of a table, named by its stem, and what writes each.
RENDERERS: dict[str, Callable[[Table], str]] = {
    "{}.md": markdown.render,
    "details/{}.md": markdown.render_details,
    "{}.tex": latex.render,
    "{}.csv": csv.render,
}


def write_tables(tables: Sequence[Table], folder: Path | str) -> list[Path]:
    """``<stem>.md``, ``.tex`` and ``.csv`` for each table with records, and ``details/<stem>.md``.

    A table without any has no files: what an earlier call left of it is removed. The same records give the same bytes.
    """
    paths = []
    for table in tables:
        for name, render in RENDERERS.items():
            path = Path(folder) / name.format(table.stem)
            if table.num_records:
                write_text(path, render(table))
                paths.append(path)
            else:
                with one_line_errors("remove", path):
                    path.unlink(missing_ok=True)
    return paths


def publish_runs(
    runs: Iterable[str],
    outputs: Path | str = "outputs",
    target: Path | str = "results/runs",
    *,
    dirty: bool = False,
    answers: Callable[[Path], dict[str, Any]] | None = None,
) -> list[Path]:
    """Copy the records of finished runs, without predictions, to ``<target>/<id>.json``; all are checked first.

    ``answers``: the folder of a run -> the fields ``PUBLISHED_ALONE`` of a record that is not published with them yet.

    UserError: a different record is there under that id (published results are never replaced in silence), the run was
    started from a source with uncommitted changes and ``dirty`` does not allow it, or the folder cannot be written to.
    """
    paths = [find_run(run, Path(outputs)) / RECORD for run in runs]
    if lacking := [path.parent for path in paths if not path.is_file()]:
        raise UserError(f"{lacking[0]} has no {RECORD}: the run has not ended; resume it with the same command")
    records = [read_record(path) for path in paths]
    changed = [record.id for record in records if record.git.get("dirty")]
    if changed and not dirty:
        raise UserError(
            f"{changed[0]} was started from a source with uncommitted changes, which nobody can have again: commit and "
            "run it again, or python scripts/publish.py --dirty RUN, and every table with it will say so"
        )
    for number, (path, record) in enumerate(zip(paths, records, strict=True)):
        published = Path(target) / f"{record.id}.json"
        kept = read_record(published) if published.is_file() else record
        fields = {name: getattr(kept, name) for name in PUBLISHED_ALONE}
        if answers and not kept.worst:
            fields |= answers(path.parent)
        records[number] = replace(record, **fields)
    with one_line_errors("publish to", Path(target)):
        return [write_record(Path(target) / f"{record.id}.json", record) for record in records]
