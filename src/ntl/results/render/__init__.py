"""A table as text and as files. Each module makes one form; ``text`` has what their cells and legends say."""

from collections.abc import Sequence
from pathlib import Path

from ntl.results.render import csv, latex, markdown
from ntl.results.table import Table
from ntl.system.errors import one_line_errors
from ntl.system.files import write_text

RENDERERS = {"md": markdown.to_markdown, "tex": latex.to_latex, "csv": csv.to_csv}


def write_tables(tables: Sequence[Table], folder: Path | str) -> list[Path]:
    """``<stem>.md``, ``.tex`` and ``.csv`` for each table with records.

    A table without any has no files: what an earlier call left of it is removed. The same records give the same bytes.
    """
    written = []
    for table in tables:
        for suffix, render in RENDERERS.items():
            path = Path(folder) / f"{table.stem}.{suffix}"
            if table.num_records:
                write_text(path, render(table))
                written.append(path)
            else:
                with one_line_errors("remove", path):
                    path.unlink(missing_ok=True)
    return written
