"""`make notebooks`: run the notebooks and keep in them what they show, but for what differs from run to run."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ntl.config.cli import Parser, report
from ntl.system.errors import UserError

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
# The tag by which nbconvert, too, leaves out what a cell shows: here that of training, which has times in it.
LEFT_OUT = "remove_output"


def read(path: Path) -> Any:
    """The notebook in a file."""
    import nbformat

    return nbformat.read(path, as_version=4)


def execute(notebook: Any) -> None:
    """Put in what its cells show now, without warnings, whose lines name places; an error in a cell is raised."""
    from nbclient import NotebookClient

    metadata = dict(notebook.metadata)
    place = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=500, kernel_name="python3", resources=place, record_timing=False).execute()
    notebook.metadata.clear()
    notebook.metadata.update(metadata)  # without the version of Python
    for cell in notebook.cells:
        if cell.cell_type == "code":
            left_out = LEFT_OUT in cell.metadata.get("tags", [])
            cell.outputs = [output for output in cell.outputs if not left_out and output.get("name") != "stderr"]


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help="files in notebooks/ (default: all)")
    names = parser.parse_args(argv).names
    if absent := [name for name in names if not (FOLDER / name).is_file()]:
        raise UserError(f"notebooks/{absent[0]}: no such notebook; choose from {', '.join(NOTEBOOKS)}.")
    import nbformat

    for path in (FOLDER / name for name in names or NOTEBOOKS):
        notebook = read(path)
        execute(notebook)
        nbformat.write(notebook, path)
        print(f"notebooks/{path.name}")


if __name__ == "__main__":
    sys.exit(report(main))
