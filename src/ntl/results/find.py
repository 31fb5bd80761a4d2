"""The folder of a run, as a user names it."""

from pathlib import Path

from ntl.config.legality import nearest
from ntl.system.errors import UserError


def find_run(run: str, outputs: Path) -> Path:
    """A run folder, or the folder of a run id under ``outputs``. UserError names the nearest id."""
    for folder in (Path(run), outputs / run):
        if folder.is_dir():
            return folder
    ids = sorted(child.name for child in outputs.iterdir() if child.is_dir()) if outputs.is_dir() else []
    hint = nearest(run, ids) or f" There are {len(ids)} runs there."
    raise UserError(f"no run {run!r}: neither a run folder nor an id under {outputs}/.{hint}")
