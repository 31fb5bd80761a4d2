"""Making the prepared folder of a data set: under a lock, in a temporary folder, renamed when it is whole."""

import errno
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.config.errors import one_line_errors
from ntl.config.leftovers import UNUSED_SECONDS, sweep
from ntl.config.locks import Lock, acquire
from ntl.data import store

if TYPE_CHECKING:
    from ntl.data.base import TextDataset


def data_roots(data_dir: Path) -> list[Path]:
    """Folders to read from: the data folder, then NTL_DATA_DIR. Only the first is ever written to."""
    shared = os.environ.get("NTL_DATA_DIR")
    roots = [data_dir] if not shared else [data_dir, Path(shared)]
    return list(dict.fromkeys(root.absolute() for root in roots))


def find_prepared(folder_name: str, data_dir: Path) -> Path | None:
    """The prepared folder under the first root that has it."""
    return next((root / folder_name for root in data_roots(data_dir) if (root / folder_name).is_dir()), None)


def prepare(
    dataset: "TextDataset", data_dir: Path, log: Callable[[str], None], *, verify: bool, download: bool
) -> Path:
    """See ``TextDataset.prepare``."""
    found = _complete(dataset, data_dir, log, download)
    if found is None:
        with one_line_errors("make the data folder", data_dir):
            data_dir.mkdir(parents=True, exist_ok=True)
        with lock(data_dir / f".{dataset.folder_name}.lock", log) as held:
            # Another process may have been first; what it left out, it could not have.
            found = _complete(dataset, data_dir, log, download=False)
            found = found or _make(dataset, data_dir, log, download=download, held=held)
    store.check_files(found, dataset.fault, digests=verify)
    return found


def _complete(dataset: "TextDataset", data_dir: Path, log: Callable[[str], None], download: bool) -> Path | None:
    """The prepared folder, unless a split was left out of it whose file can now be had."""
    found = find_prepared(dataset.folder_name, data_dir)
    missing = store.read_manifest(found).get("missing") if found else None
    return None if missing and dataset.obtainable(missing, data_dir, log, download=download) else found


@contextmanager
def lock(path: Path, log: Callable[[str], None]) -> Iterator[bool]:
    """Hold a lock that the system releases when the process dies, however it dies. False where there are no locks."""
    with one_line_errors("write", path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            held = _acquire(handle, path, log)
        except BaseException:
            os.close(handle)
            raise
    try:
        yield held
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, log: Callable[[str], None]) -> bool:
    held = acquire(handle)
    if held is Lock.theirs:
        log(f"waiting for another process that holds {path}")
        held = acquire(handle, wait=True)
    # Without locks the rename alone still keeps two preparations apart.
    return held is Lock.ours


def _make(dataset: "TextDataset", data_dir: Path, log: Callable[[str], None], *, download: bool, held: bool) -> Path:
    target = data_dir / dataset.folder_name
    prefix = f".{dataset.folder_name}.part-"
    # Without a lock the folder of a process that is at work may be among them.
    sweep(data_dir, f"{prefix}*", 0 if held else UNUSED_SECONDS)
    if dataset.origin:
        log(f"{dataset.name}: licence: {dataset.origin.licence}")
    material = dataset.material(data_dir, log, download=download)
    for split, why in material.missing.items():
        log(f"{dataset.name} has no {split} rows: {why}.")
    covered = {*material.splits, *material.missing}
    assert covered == set(dataset.splits), f"{dataset.name}: material and splits disagree"
    with one_line_errors("write prepared data to", data_dir):
        part = Path(tempfile.mkdtemp(prefix=prefix, dir=data_dir))
        try:
            entries = {split: store.write_split(part, split, rows) for split, rows in material.splits.items()}
            manifest = {
                "schema": store.SCHEMA,
                "dataset": dataset.name,
                "version": dataset.version,
                "config": dataset.values,
                "source": material.source,
                "missing": material.missing,
                "remarks": material.remarks,
                "made_with": _versions(),
                "splits": entries,
            }
            with open(part / store.MANIFEST, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(manifest, indent=1) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            part.chmod(0o755)  # mkdtemp's own mode shuts out everyone else
            if target.is_dir() and store.read_manifest(target).get("missing"):
                # A kill between the two renames costs one more preparation, and no reader a half-written folder.
                os.replace(target, Path(f"{part}-old"))
            _rename(part, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            shutil.rmtree(f"{part}-old", ignore_errors=True)
    return target


def _rename(part: Path, target: Path) -> None:
    try:
        os.replace(part, target)
    except OSError as error:
        # Without locks another process may have been first; its folder is as good as ours.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("numpy", "pyarrow"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
