"""A data set in a folder: made under a lock in a temporary folder, renamed when it is whole, then read from there."""

import errno
import hashlib
import json
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntl.config.identity import contents_of, setting_files
from ntl.data import store
from ntl.data.dataset import Log, Material, TextDataset, dataset_named
from ntl.data.raw import Missing
from ntl.data.reads import Files, Stamp, code_of, named_files, watching
from ntl.data.store import Rows
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import UNUSED_SECONDS, data_roots, sha256_changes, sha256_of, sweep, sync
from ntl.system.locks import wait_for_lock

if TYPE_CHECKING:
    import datasets

MAX_TARGETS = 1_000_000
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Copy:
    """A prepared folder, compared with what it was made from.

    ``changed`` and ``gone`` are source files that have other content now, and that no longer exist. ``other_code``: the
    code that made it has changed, or its manifest does not say what it was made from.
    """

    folder: Path
    manifest: dict[str, Any]
    changed: list[str]
    gone: list[str]
    other_code: bool

    @property
    def is_current(self) -> bool:
        """Whether making it again would give the same; also true of what cannot be made again."""
        return not self.changed and (bool(self.gone) or not self.other_code)

    @property
    def doubt(self) -> tuple[int, bool]:
        """A sort key: of several current copies the one with the least doubt is used."""
        return len(self.gone), self.other_code

    @property
    def digests(self) -> dict[str, str]:
        return _digests(self.manifest)


class Prepared:
    """A data set and the data folder ``data_dir`` in which it is, or will be, prepared.

    Prepared folders under ``data_dir`` and under NTL_DATA_DIR are read; only ``data_dir`` is written to.
    """

    def __init__(self, dataset: TextDataset, data_dir: Path | str) -> None:
        self.dataset = dataset
        self.data_dir = Path(data_dir)
        # What `prepare` returned: a run reads one folder, whatever happens to the source files meanwhile.
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder with the prepared files; UserError says how to make it."""
        if self._folder and self._folder.is_dir():
            return self._folder
        found = self.find()
        if found is None:
            changed = self._changed_sources()
            own = self.data_dir / self.dataset.folder_name
            why = f"{changed[0]} has changed since" if changed else f"no folder {own}"
            raise UserError(
                f"{self.dataset.name} with these settings is not prepared: {why}; "
                f"run python scripts/prepare_data.py {self.dataset.name} with the same settings."
            )
        return found

    @property
    def manifest(self) -> dict[str, Any]:
        """Source, versions and files of the prepared data set."""
        return store.read_manifest(self.folder)

    def rows(self, split: str) -> Rows:
        """The rows of a split as a sequence of dicts, after a check of the file's sha256."""
        folder = self.folder
        return store.read_split(folder, split, self._entry(folder, split))

    def load(self, split: str) -> "datasets.Dataset":
        """The rows of a split as a ``datasets.Dataset`` with the columns id, question and answer, memory-mapped."""
        from datasets import Dataset

        rows = self.rows(split)
        folder = self.folder
        arrow = store.intact_arrow(folder, self._entry(folder, split))
        return Dataset.from_file(str(arrow)) if arrow else Dataset.from_list([dict(row) for row in rows])

    def train_targets(self) -> list[str]:
        """The answers of the training split, for scores of constant answers; of more than a million every k-th.

        All 26 million of the largest set would take gigabytes for the sake of a median.
        """
        rows = self.rows("train")
        # One by one: a slice would hold every row's question as well.
        return [rows[index]["answer"] for index in range(0, len(rows), -(-len(rows) // MAX_TARGETS) or 1)]

    def fingerprint(self) -> dict[str, Any]:
        """``{"files": {file name: sha256}, "rows": {split: count}}`` of the prepared files, and the remarks on them."""
        manifest = self.manifest
        rows = {split: entry["rows"] for split, entry in manifest["splits"].items()}
        return {"files": _digests(manifest), "rows": rows, **manifest.get("remarks", {})}

    def digests(self) -> dict[str, str]:
        """The sha256 of every prepared file as it is now, whatever the manifest says; empty before preparation."""
        found = self.find()
        return {path.name: sha256_of(path) for path in sorted(found.glob("*.jsonl"))} if found else {}

    def content_key(self, split: str) -> str:
        """What the token ids of a split are kept under: a digest of the prepared files and the split's name."""
        content = [self.fingerprint()["files"], split]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def changes_since(self, files: Mapping[str, str]) -> str:
        """How the data differs from ``fingerprint()["files"]`` of an earlier run; empty where nothing is known to.

        Nothing is prepared, and little is read: prepared folders and the digests of their sources decide.
        """
        found = self.copies() if files else []
        own = [copy for copy in found if copy.digests == files]
        if any(not copy.changed for copy in own):
            return ""
        if own:
            return f"{' and '.join(own[0].changed)} has other content since"
        now = next((copy.digests for copy in found if copy.is_current), files)
        return sha256_changes(files, now)

    def _entry(self, folder: Path, split: str) -> dict[str, Any]:
        name, splits = self.dataset.name, self.dataset.splits
        if split not in splits:
            raise UserError(f"{name} has no split {split!r}; choose one of {', '.join(splits)}.")
        manifest = store.read_manifest(folder)
        entries = manifest["splits"]
        if why := manifest.get("missing", {}).get(split):
            raise Missing(f"{name} has no {split} rows: {why}.")
        if split not in entries:
            raise UserError(f"{folder / store.MANIFEST}:1: no split {split!r}; delete the folder and prepare it again.")
        return entries[split]

    def copies(self) -> list[Copy]:
        """All prepared folders with these settings: there are several where source files have changed."""
        name, roots = self.dataset.folder_name, data_roots(self.data_dir)
        folders = [path for root in roots for path in (root / name, *sorted(root.glob(f"{name}-*"))) if path.is_dir()]
        files, code = Files(roots), code_of(type(self.dataset))
        lost, found = self._lost(), []
        for folder in folders:
            manifest = store.read_manifest(folder)
            made_from = manifest.get("made_from")
            if made_from is None:
                # An older version's. The files of an official release were compared with their sha256 then.
                found.append(Copy(folder, manifest, [], [], other_code=self.dataset.origin is None))
            else:
                changed, gone = files.changes(made_from["files"])
                found.append(Copy(folder, manifest, changed, [*gone, *lost], other_code=made_from["code"] != code))
        return found

    def find(self) -> Path | None:
        """The prepared folder whose source files have not changed. UserError where two could be meant."""
        found = [copy for copy in self.copies() if copy.is_current]
        best = [copy for copy in found if copy.doubt == min(other.doubt for other in found)]
        if any(copy.gone and copy.digests != best[0].digests for copy in best):
            raise UserError(
                f"{best[0].gone[0]} is gone, and {' and '.join(str(copy.folder) for copy in best)} were made from "
                "different ones; put it back, or delete the folder that is not meant."
            )
        return best[0].folder if best else None

    def _find_complete(self, log: Log, *, download: bool) -> Path | None:
        """``find``, but None where a split was left out whose file can be had now."""
        found = self.find()
        missing = store.read_manifest(found).get("missing") if found else None
        obtainable = missing and self.dataset.obtainable(missing, self.data_dir, log, download=download)
        return None if obtainable else found

    def _lost(self) -> dict[str, str]:
        """Of the settings that name files: value -> sha256, where what it names is gone or has other content now."""
        config = self.dataset.config
        contents: dict[str, str] = getattr(config, "contents", {})
        now = setting_files(config, self.data_dir) if contents else {}
        lost = {key for key, content in contents.items() if key not in now or contents_of(now[key]) != content}
        return {str(getattr(config, key)): contents[key] for key in sorted(lost)}

    def _check_sources(self) -> None:
        for path, content in self._lost().items():
            raise UserError(
                f"{path}: gone, or changed since this run was named by its content, {content}, of which no prepared "
                "copy is left; put it back."
            )

    def _changed_sources(self) -> list[str]:
        return list(dict.fromkeys(path for copy in self.copies() for path in copy.changed))

    def prepare(self, log: Log = logger.info, *, verify: bool = False, download: bool = True) -> Path:
        """Make the prepared files if they are missing, check them if they exist; returns their folder.

        They are made anew where a source file has changed since, or the code of the data set. The folder that was made
        before stays where its rows are others, and is found again when the source is as it was. Atomic, and safe
        against a second process that does the same. Sizes are checked, with ``verify`` every sha256.
        ``download=False`` never asks the network for the official release.
        """
        found = self._find_complete(log, download=download)
        if found is None:
            for changed in self._changed_sources():
                log(f"{self.dataset.name}: {changed} has changed since it was prepared: preparing it anew")
            with one_line_errors("make the data folder", self.data_dir):
                self.data_dir.mkdir(parents=True, exist_ok=True)
            with wait_for_lock(self.data_dir / f".{self.dataset.folder_name}.lock", log) as held:
                # Another process may have been first; what it left out, it could not have.
                found = self._find_complete(log, download=False) or self._make(log, download=download, held=held)
        manifest = store.check_files(found, digests=verify)
        for path in self._lost():
            log(f"{path}: gone, or changed since it was prepared; reading the prepared copy {found}")
        for warning in manifest.get("remarks", {}).get("warnings", []):
            log(warning)
        self._folder = found
        return found

    def _make(self, log: Log, *, download: bool, held: bool) -> Path:
        dataset, data_dir = self.dataset, self.data_dir
        prefix = f".{dataset.folder_name}.part-"
        # Without a lock the folder of another process at work may be among them.
        sweep(data_dir, f"{prefix}*", 0 if held else UNUSED_SECONDS)
        self._check_sources()
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
                    manifest = self._write(part, material, opened)
                    self._check_sources()  # it may have been edited while it was read
                    target, replaces = self._target(manifest)
                    if replaces:
                        # A kill between the two renames costs one more preparation, and no reader a partial folder.
                        os.replace(target, Path(f"{part}-old"))
                    _rename(part, target)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
                    shutil.rmtree(f"{part}-old", ignore_errors=True)
        return target

    def _write(self, part: Path, material: Material, opened: Mapping[str, Stamp]) -> dict[str, Any]:
        """Write the splits, then the manifest, which is returned. ``opened`` grows while the rows are read."""
        dataset, roots = self.dataset, data_roots(self.data_dir)
        entries = {split: store.write_split(part, split, rows) for split, rows in material.splits.items()}
        # What `contents` covers is part of the folder's name.
        known = [path for paths in setting_files(dataset.config, self.data_dir).values() for path in paths]
        without = [part, *(known if getattr(dataset.config, "contents", {}) else [])]
        files = Files(roots).digests_by_name(opened, named_files(dataset.values, roots), without)
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
        (part / store.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        sync(part / store.MANIFEST)
        part.chmod(0o755)  # mkdtemp's own mode shuts out everyone else
        return manifest

    def _target(self, manifest: dict[str, Any]) -> tuple[Path, bool]:
        """Where a folder with this manifest goes, and whether another one is there that it replaces.

        It replaces a folder with the same rows, or with fewer splits. One with other rows stays: a run may read it.
        """
        own, digests = self.data_dir / self.dataset.folder_name, _digests(manifest)
        for copy in self.copies():
            has_fewer = copy.manifest.get("missing") and copy.digests.items() <= digests.items()
            if copy.folder.parent == self.data_dir.absolute() and (copy.digests == digests or has_fewer):
                return copy.folder, True
        if not own.is_dir():
            return own, False
        content = hashlib.sha256(json.dumps(manifest["made_from"], sort_keys=True).encode()).hexdigest()
        other = self.data_dir / f"{own.name}-{content[:8]}"
        return other, other.is_dir()


def load_dataset(name: str, split: str, data_dir: Path | str | None = None) -> "datasets.Dataset":
    """A split as a ``datasets.Dataset`` with the columns id, question and answer, prepared on first use.

    ``data_dir`` is where prepared files are written, ``data`` when None. Whatever lies under the environment variable
    NTL_DATA_DIR, prepared or raw, is read and never written.
    """
    data_dir = "data" if data_dir is None else data_dir
    prepared = Prepared(dataset_named(name, data_dir), data_dir)
    prepared.prepare()
    return prepared.load(split)


def _digests(manifest: dict[str, Any]) -> dict[str, str]:
    return {entry["file"]: entry["sha256"] for entry in manifest["splits"].values()}


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
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
