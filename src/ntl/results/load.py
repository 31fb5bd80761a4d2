"""Finding runs and records: published ones (results/runs/**/*.json), local ones (outputs/*/record.json)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ntl.config.settings import nearest
from ntl.results.record import RunRecord, read_record
from ntl.system.errors import UserError

RECORD = "record.json"


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (RECORD, "config.yaml"))


def _record_files(folder: Path) -> Iterator[Path]:
    """Records under a folder. JSON files inside run folders, or in a folder that has run folders, are no records."""
    if _is_run(folder):
        if (folder / RECORD).is_file():
            yield folder / RECORD
        return
    children = sorted(child for child in folder.iterdir() if not child.name.startswith("."))
    folders = [child for child in children if child.is_dir()]
    if not any(map(_is_run, folders)):
        yield from (child for child in children if child.suffix == ".json" and child.is_file())
    for child in folders:
        yield from _record_files(child)


def check_folders(folders: Sequence[Path]) -> Sequence[Path]:
    """The folders of ``--records``, as they are. UserError for one that does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"--records {folder}: no such folder")
    return folders


def run_record(folder: Path) -> RunRecord:
    """The record in the folder of a run. UserError as of ``read_record``, or where it is that of another run."""
    path, record = folder / RECORD, read_record(folder / RECORD)
    if record.id != folder.absolute().name:
        raise UserError(f"{path}: the record of another run, {record.id}; move it there, or remove it.")
    return record


def load_records(folders: Iterable[Path | str]) -> list[RunRecord]:
    """All records under the folders, sorted by id; a folder that does not exist holds none.

    Of two records with one id the one with more decodings is taken, then the one of a run folder. UserError as of
    ``run_record``.
    """
    found: dict[str, tuple[tuple[int, bool], RunRecord]] = {}
    for folder in map(Path, folders):
        for path in _record_files(folder) if folder.is_dir() else ():
            record = run_record(path.parent) if path.name == RECORD else read_record(path)
            precedence = len(record.config.get("beside", {})), path.name == RECORD
            if record.id not in found or precedence > found[record.id][0]:
                found[record.id] = precedence, record
    return [found[key][1] for key in sorted(found)]


def find_run(run: str, outputs: Path) -> Path:
    """A run folder, or the folder of a run id under ``outputs``. UserError names the nearest id."""
    for folder in (Path(run), outputs / run):
        if folder.is_dir():
            return folder
    ids = sorted(child.name for child in outputs.glob("[!.]*") if child.is_dir())
    hint = nearest(run, ids) or f" There are {len(ids)} runs there."
    raise UserError(f"no run {run!r}: neither a run folder nor an id under {outputs}/.{hint}")
