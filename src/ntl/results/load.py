"""Finding runs and records: published ones (results/runs/**/*.json), local ones (outputs/*/record.json); CSV files."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ntl.config.suggestions import nearest
from ntl.results.match import leaves
from ntl.results.record import RunRecord, read_record
from ntl.system.errors import UserError

RECORD = "record.json"
_RUN_FILES = (RECORD, "config.yaml")


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _RUN_FILES)


def _record_files(folder: Path) -> Iterator[Path]:
    """Records under a folder. JSON files inside run folders, or in a folder that has run folders, are no records."""
    if _is_run(folder):
        if (folder / RECORD).is_file():
            yield folder / RECORD
        return
    children = sorted(child for child in folder.iterdir() if not child.name.startswith("."))
    folders = [child for child in children if child.is_dir()]
    if not any(_is_run(child) for child in folders):
        yield from (child for child in children if child.suffix == ".json" and child.is_file())
    for child in folders:
        yield from _record_files(child)


def _agree(first: RunRecord, second: RunRecord) -> bool:
    # A setting that one of them lacks is younger than that record and had its default: the ids are the same.
    left, right = ({key: json.dumps(value) for key, value in leaves(each.config).items()} for each in (first, second))
    return all(left[key] == right[key] for key in left.keys() & right.keys() if not key.startswith("beside"))


def _precedence(path: Path, record: RunRecord) -> tuple[int, bool]:
    # A record with more decodings has all that the other has.
    return len(record.config.get("beside", {})), path.name == RECORD


def check_folders(folders: Sequence[Path]) -> Sequence[Path]:
    """The folders of ``--records``, as they are. UserError for one that does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"--records {folder}: no such folder")
    return folders


def load_records(folders: Iterable[Path | str]) -> list[RunRecord]:
    """All records under the folders, sorted by id; a folder that does not exist holds none.

    Of two records with one id the one with more decodings is taken, then the one of a run folder, if their configs
    agree in all settings that both have; else a UserError names both.
    """
    found: dict[str, tuple[Path, RunRecord]] = {}
    for folder in folders:
        for path in _record_files(Path(folder)) if Path(folder).is_dir() else ():
            record = read_record(path)
            if record.id in found:
                other, known = found[record.id]
                if not _agree(known, record):
                    raise UserError(f"{path} and {other} have the id {record.id} but different configs: remove one")
                if _precedence(other, known) >= _precedence(path, record):
                    continue
            found[record.id] = (path, record)
    return [found[key][1] for key in sorted(found)]


def find_run(run: str, outputs: Path) -> Path:
    """A run folder, or the folder of a run id under ``outputs``. UserError names the nearest id."""
    for folder in (Path(run), outputs / run):
        if folder.is_dir():
            return folder
    ids = sorted(child.name for child in outputs.iterdir() if child.is_dir()) if outputs.is_dir() else []
    hint = nearest(run, ids) or f" There are {len(ids)} runs there."
    raise UserError(f"no run {run!r}: neither a run folder nor an id under {outputs}/.{hint}")


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, by column name; lines that begin with # are comments.

    UserError where the file is not there or a row has another number of values than the header.
    """
    try:
        with open(path, encoding="utf-8", newline="") as stream:
            header, *rows = csv.reader(line for line in stream if not line.startswith("#"))
        return [dict(zip(header, values, strict=True)) for values in rows]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): restore it, or run its script again") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path}: not a table ({error}): restore it, or run its script again") from error
