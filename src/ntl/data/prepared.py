"""The prepared form of a data set: a folder with a file of JSON lines for each split, and a manifest with their sha256.

It is made under a lock in a temporary folder, renamed when it is whole, then read from there.
"""

import hashlib
import json
import mmap
import os
import platform
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ntl.config.identity import contents_of, setting_files
from ntl.config.root import DatasetConfig
from ntl.data.dataset import Example, TextDataset, dataset_named
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import data_roots, make_once, sha256_changes, sha256_of, sync, write_atomically
from ntl.system.messages import logger

if TYPE_CHECKING:
    import datasets

MANIFEST = "manifest.json"
SCHEMA = 1
MAX_TARGETS = 1_000_000


class Lines:
    r"""The lines of a file, without their ends. Only ``\n`` ends one; at the end of the file it is optional."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _data(self) -> mmap.mmap:
        with one_line_errors("read", self.path), open(self.path, "rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def _bounds(self) -> np.ndarray:
        # Where each line begins, and the end.
        with one_line_errors("read", self.path), open(self.path, "rb") as stream:
            kind = np.uint32 if os.fstat(stream.fileno()).st_size < 2**32 else np.int64
            return np.fromiter(accumulate(map(len, stream), initial=0), kind)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> Any:
        place = range(len(self))[index]
        return self._data[int(self._bounds[place]) : int(self._bounds[place + 1])].removesuffix(b"\n")


class SplitRows(Lines):
    """The rows of a prepared split, each an `Example` that is parsed when it is read."""

    def __getitem__(self, index: int) -> Example:
        return json.loads(super().__getitem__(index))


def write_split(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Write rows as JSON lines; returns the manifest's entry. Memory does not grow with the number of rows."""
    encode, count = json.JSONEncoder(separators=(",", ":")).encode, 0
    with open(path, "w", encoding="ascii", newline="\n") as stream:
        for row in rows:
            stream.write(f"{encode(row)}\n")
            count += 1
    sync(path)
    return {"rows": count, "file": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


class Prepared:
    """A data set and the data folder ``data_dir`` in which it is, or will be, prepared.

    Prepared folders under ``data_dir`` and under NTL_DATA_DIR are read; only ``data_dir`` is written to.
    """

    def __init__(self, dataset: DatasetConfig, data_dir: Path | str) -> None:
        self.dataset, self.data_dir = cast(TextDataset, dataset), Path(data_dir)

    def find(self) -> Path | None:
        """The prepared folder, if there is one."""
        folders = [root / self.dataset.folder_name for root in data_roots(self.data_dir)]
        return next((folder for folder in folders if folder.is_dir()), None)

    @property
    def folder(self) -> Path:
        """The prepared folder; UserError says how to make it."""
        if folder := self.find():
            return folder
        raise UserError(
            f"{self.dataset.name} with these settings is not prepared: no folder "
            f"{self.data_dir / self.dataset.folder_name}; run python scripts/prepare_data.py {self.dataset.name} with "
            "the same settings."
        )

    @property
    def manifest(self) -> dict[str, Any]:
        """Source, versions and, per split, file, rows, bytes and sha256 of the prepared data set."""
        return json.loads((self.folder / MANIFEST).read_bytes())

    def rows(self, split: str) -> SplitRows:
        """The rows of a split as a sequence of dicts, after a check of the file's sha256."""
        path, dataset = self.folder / f"{split}.jsonl", self.dataset
        if split not in dataset.all_splits:
            raise UserError(f"{dataset.name} has no split {split!r}; choose one of {', '.join(dataset.all_splits)}.")
        if not path.is_file() or sha256_of(path) != _digests(self.manifest)[path.name]:
            fault = f"not the file that was prepared: its sha256 is not the one in {MANIFEST}, or it is gone"
            remedy = f"delete the folder {path.parent} and prepare it again with scripts/prepare_data.py"
            raise UserError(f"{path}: {fault}; {remedy}.")
        return SplitRows(path)

    def load(self, split: str) -> "datasets.Dataset":
        """The rows of a split as a ``datasets.Dataset`` of text, mapped from the data folder."""
        from datasets import Dataset, Features, Value

        rows, key = self.rows(split), self.content_key(split)[:16]
        columns = Features(dict.fromkeys(rows[0], Value("string")))
        # Not from_json, which makes 2020-01-01 00:00:00 of 2020-01-01.
        cache = str(self.data_dir.absolute() / ".datasets")
        dataset: Any = Dataset.from_generator(lambda: iter(rows), columns, cache, fingerprint=key)
        return dataset

    def train_targets(self) -> list[str]:
        """The answers of the training split, for scores of constant answers; of more than a million every k-th.

        All 26 million of the largest set would take gigabytes for the sake of a median.
        """
        rows = self.rows("train")
        return [rows[index]["answer"] for index in range(0, len(rows), -(-len(rows) // MAX_TARGETS) or 1)]

    def fingerprint(self) -> dict[str, Any]:
        """``{"files": {file name: sha256}, "rows": {split: count}}`` of the prepared files, and the remarks on them."""
        manifest = self.manifest
        rows = {split: entry["rows"] for split, entry in manifest["splits"].items()}
        return {"files": _digests(manifest), "rows": rows, **manifest.get("remarks", {})}

    def digests(self) -> dict[str, str]:
        """The sha256 of every prepared file as it is now, whatever the manifest says; empty before preparation."""
        folder = self.find()
        return {path.name: sha256_of(path) for path in sorted(folder.glob("*.jsonl"))} if folder else {}

    def content_key(self, split: str) -> str:
        """What the token ids of a split are kept under: a digest of the prepared files and the split's name."""
        content = [_digests(self.manifest), split]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def changes_since(self, files: Mapping[str, str]) -> str:
        """How the data differs from ``fingerprint()["files"]`` of an earlier run; empty where nothing is known to."""
        return sha256_changes(files, _digests(self.manifest)) if files and self.find() else ""

    def prepare(self, *, download: bool = True) -> Path:
        """Make the prepared files if they are missing, check their sizes if they exist; returns their folder.

        Atomic, and safe against a second process that does the same. ``download=False`` never asks the network for the
        official release.
        """
        if not self.find():  # before a folder is made
            self._check_sources()
        target = self.data_dir / self.dataset.folder_name
        folder = make_once(target, self.find, lambda new: self._write(new, download), "write prepared data to")
        manifest = self.manifest
        for split, entry in manifest["splits"].items():
            path = folder / entry["file"]
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                self.rows(split)  # which says what is wrong
        for warning in manifest.get("remarks", {}).get("warnings", []):
            logger.warning(warning)
        return folder

    def _write(self, folder: Path, download: bool) -> None:
        dataset = self.dataset
        if dataset.origin:
            logger.info(f"{dataset.name}: licence: {dataset.origin.licence}")
        material = dataset.material(self.data_dir, download=download)
        made, wanted = material.splits, dataset.wanted
        if wrong := sorted({*wanted} - made.keys() | made.keys() - {*dataset.all_splits}):
            raise UserError(f"dataset={dataset.name}: material() and splits do not both have {', '.join(wrong)}.")
        splits = {split: write_split(folder / f"{split}.jsonl", made[split]) for split in made if split in wanted}
        self._check_sources()  # that none was written to while it was read
        manifest = {
            "schema": SCHEMA,
            "dataset": dataset.name,
            "version": dataset.version,
            "config": dataset.values,
            "source": material.source,
            "remarks": material.remarks,
            "made_with": {"python": platform.python_version(), "numpy": np.__version__},
            "splits": splits,
        }
        write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")

    def _check_sources(self) -> None:
        """UserError where the content of a file that a setting names is no longer what the data set is named by."""
        config = self.dataset
        now = setting_files(config, self.data_dir) if config.contents else {}
        for key, content in config.contents.items():
            if key not in now or contents_of(now[key]) != content:
                raise UserError(
                    f"{getattr(config, key)}: gone, or changed since this run was named by its content, {content}, of "
                    f"which no prepared copy is left in {self.data_dir.resolve()}; put it back, or work in the folder "
                    "that the run was made in."
                )


def load_dataset(name: str, split: str, data_dir: Path | str | None = None) -> "datasets.Dataset":
    """A split as a ``datasets.Dataset`` with the columns id, question and answer, prepared on first use.

    It needs its own files alone: where files of other splits are missing or damaged, it is prepared without these.
    ``data_dir`` is where prepared files are written, ``data`` when None. Whatever lies under the environment variable
    NTL_DATA_DIR, prepared or raw, is read and never written.
    """
    data_dir = "data" if data_dir is None else data_dir
    dataset = dataset_named(name, data_dir)
    prepared = Prepared(dataset, data_dir)
    try:
        prepared.prepare()
    except UserError:
        if split not in dataset.all_splits:
            raise
        prepared = Prepared(dataset.alone(split), data_dir)
        prepared.prepare()
    return prepared.load(split)


def _digests(manifest: dict[str, Any]) -> dict[str, str]:
    return {entry["file"]: entry["sha256"] for entry in manifest["splits"].values()}
