"""Making the prepared folder of a data set: under a lock, in a temporary folder, renamed when it is whole."""

import errno
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntl.data import store
from ntl.data.reads import Files, code_of, named_files, watching
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import UNUSED_SECONDS, sweep
from ntl.system.locks import wait_for_lock

if TYPE_CHECKING:
    from ntl.data.base import TextDataset


def data_roots(data_dir: Path) -> list[Path]:
    """Folders to read from: the data folder, then NTL_DATA_DIR. Only the first is ever written to."""
    shared = os.environ.get("NTL_DATA_DIR")
    roots = [data_dir] if not shared else [data_dir, Path(shared)]
    return list(dict.fromkeys(root.absolute() for root in roots))


@dataclass(frozen=True)
class Copy:
    """A prepared folder, and what of the files that it was made from is no longer so.

    ``changed`` and ``gone`` are files. ``is_other``: the code that made it has changed, or it does not say what it was
    made from.
    """

    folder: Path
    manifest: dict[str, Any]
    changed: list[str]
    gone: list[str]
    is_other: bool

    @property
    def is_current(self) -> bool:
        """Whether making it again would give the same; true of what cannot be made again."""
        return not self.changed and (bool(self.gone) or not self.is_other)

    @property
    def doubt(self) -> tuple[int, bool]:
        """Of several current copies that with the least is meant."""
        return len(self.gone), self.is_other

    @property
    def digests(self) -> dict[str, str]:
        """File name -> sha256 of its splits."""
        return digests_of(self.manifest["splits"])


def digests_of(splits: dict[str, dict[str, Any]]) -> dict[str, str]:
    """File name -> sha256 of a manifest's splits."""
    return {entry["file"]: entry["sha256"] for entry in splits.values()}


def copies(dataset: "TextDataset", data_dir: Path) -> list[Copy]:
    """All prepared folders of a data set with these settings: there are several where its files have changed."""
    name, roots = dataset.folder_name, data_roots(data_dir)
    files, code = Files(roots), code_of(type(dataset))
    found = []
    for folder in [path for root in roots for path in (root / name, *sorted(root.glob(f"{name}-*"))) if path.is_dir()]:
        manifest = store.read_manifest(folder)
        made_from = manifest.get("made_from")
        if made_from is None:
            # An older version's. What an official release is read from was compared with its sha256 then.
            found.append(Copy(folder, manifest, [], [], dataset.origin is None))
        else:
            changed, gone = files.changes(made_from["files"])
            found.append(Copy(folder, manifest, changed, gone, made_from["code"] != code))
    return found


def find_prepared(dataset: "TextDataset", data_dir: Path) -> Path | None:
    """The prepared folder whose files are still what they were. UserError where two could be meant."""
    found = [copy for copy in copies(dataset, data_dir) if copy.is_current]
    best = [copy for copy in found if copy.doubt == min(other.doubt for other in found)]
    if any(copy.gone and copy.digests != best[0].digests for copy in best):
        raise UserError(
            f"{best[0].gone[0]} is gone, and {' and '.join(str(copy.folder) for copy in best)} were made from "
            "different ones; put it back, or delete the folder that is not meant."
        )
    return best[0].folder if best else None


def prepare(
    dataset: "TextDataset", data_dir: Path, log: Callable[[str], None], *, verify: bool, download: bool
) -> Path:
    """See ``TextDataset.prepare``."""
    found = _complete(dataset, data_dir, log, download)
    if found is None:
        for changed in dict.fromkeys(path for copy in copies(dataset, data_dir) for path in copy.changed):
            log(f"{dataset.name}: {changed} has changed since it was prepared: preparing it anew")
        with one_line_errors("make the data folder", data_dir):
            data_dir.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(data_dir / f".{dataset.folder_name}.lock", log) as held:
            # Another process may have been first; what it left out, it could not have.
            found = _complete(dataset, data_dir, log, download=False)
            found = found or _make(dataset, data_dir, log, download=download, held=held)
    store.check_files(found, dataset.fault, digests=verify)
    return found


def _complete(dataset: "TextDataset", data_dir: Path, log: Callable[[str], None], download: bool) -> Path | None:
    """The prepared folder, unless a split was left out of it whose file can now be had."""
    found = find_prepared(dataset, data_dir)
    missing = store.read_manifest(found).get("missing") if found else None
    return None if missing and dataset.obtainable(missing, data_dir, log, download=download) else found


def _make(dataset: "TextDataset", data_dir: Path, log: Callable[[str], None], *, download: bool, held: bool) -> Path:
    prefix = f".{dataset.folder_name}.part-"
    # Without a lock the folder of a process that is at work may be among them.
    sweep(data_dir, f"{prefix}*", 0 if held else UNUSED_SECONDS)
    if dataset.origin:
        log(f"{dataset.name}: licence: {dataset.origin.licence}")
    with watching() as opened:
        material = dataset.material(data_dir, log, download=download)
        for split, why in material.missing.items():
            log(f"{dataset.name} has no {split} rows: {why}.")
        covered = {*material.splits, *material.missing}
        assert covered == set(dataset.splits), f"{dataset.name}: material and splits disagree"
        with one_line_errors("write prepared data to", data_dir):
            part = Path(tempfile.mkdtemp(prefix=prefix, dir=data_dir)).absolute()
            try:
                entries = {split: store.write_split(part, split, rows) for split, rows in material.splits.items()}
                roots = data_roots(data_dir)
                files = Files(roots).sealed(opened, named_files(dataset.values, roots), part)
                manifest = {
                    "schema": store.SCHEMA,
                    "dataset": dataset.name,
                    "version": dataset.version,
                    "config": dataset.values,
                    "source": material.source,
                    "missing": material.missing,
                    "remarks": material.remarks,
                    "made_from": {"code": code_of(type(dataset)), "files": files},
                    "made_with": _versions(),
                    "splits": entries,
                }
                with open(part / store.MANIFEST, "w", encoding="utf-8") as stream:
                    stream.write(json.dumps(manifest, indent=1) + "\n")
                    stream.flush()
                    os.fsync(stream.fileno())
                part.chmod(0o755)  # mkdtemp's own mode shuts out everyone else
                target, replaced = _place(dataset, data_dir, manifest)
                if replaced:
                    # A kill between the two renames costs one more preparation, and no reader a half-written folder.
                    os.replace(target, Path(f"{part}-old"))
                _rename(part, target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
                shutil.rmtree(f"{part}-old", ignore_errors=True)
    return target


def _place(dataset: "TextDataset", data_dir: Path, manifest: dict[str, Any]) -> tuple[Path, bool]:
    """Where a folder of this manifest goes, and whether it takes another's place.

    It replaces one with the same rows, or with fewer splits; one with other rows stays, since a run may be at it.
    """
    own, digests = data_dir / dataset.folder_name, digests_of(manifest["splits"])
    for copy in copies(dataset, data_dir):
        lacks = copy.manifest.get("missing") and copy.digests.items() <= digests.items()
        if copy.folder.parent == data_dir.absolute() and (copy.digests == digests or lacks):
            return copy.folder, True
    if not own.is_dir():
        return own, False
    content = hashlib.sha256(json.dumps(manifest["made_from"], sort_keys=True).encode()).hexdigest()
    other = data_dir / f"{own.name}-{content[:8]}"
    return other, other.is_dir()


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
