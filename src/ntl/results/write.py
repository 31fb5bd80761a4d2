"""The files of tables."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ntl.results.render import csv, latex, markdown
from ntl.results.table import Table
from ntl.system.errors import one_line_errors
from ntl.system.files import write_text

# The files of a table, named by its stem, and what writes each.
RENDERERS: dict[str, Callable[[Table], str]] = {
    "{}.md": markdown.to_markdown,
    "{}.tex": latex.to_latex,
    "{}.csv": csv.to_csv,
}


def write_tables(tables: Sequence[Table], folder: Path | str) -> list[Path]:
    """``<stem>.md``, ``.tex`` and ``.csv`` for each table with records.

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
