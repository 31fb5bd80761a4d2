"""Where the text files of DeepMind mathematics come from, in this order:

1. files already under the data folder or NTL_DATA_DIR: the official tree (``mathematics_dataset-v1.0/<regime>/``
   ``<module>.txt``, plain or .gz), its archive, a regenerated archive, or what step 3 left;
2. the official release, when it can be downloaded;
3. the original generator, in an environment of its own.

A source is taken as a whole: it has every wanted file with enough pairs, or the next one is asked.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntl.config import UserError
from ntl.data import download as official
from ntl.data import generator
from ntl.data.files import Pair, atomic_writer, parse_pairs, read_file, read_members
from ntl.data.preparation import data_roots, lock

Log = Callable[[str], None]
OFFICIAL_TREE = "mathematics_dataset-v1.0"
OFFICIAL_ARCHIVE = f"{OFFICIAL_TREE}.tar.gz"
GENERATED_TREE = "mathematics_dataset-generated"
# Folders the files may lie in, below a data root.
PLACES = ("", "mathematics_dataset")
SMALL_ARCHIVES = ("arithmetic-regen.tar.gz",)


@dataclass
class Texts:
    """Pairs by ``<regime>/<module>.txt``, with labels for error messages and a source for the manifest."""

    pairs: dict[str, list[Pair]]
    labels: dict[str, str]
    source: dict[str, Any]


def find_texts(wanted: Mapping[str, int], data_dir: Path, log: Log, *, download: bool = True) -> Texts:
    """The pairs of each wanted ``<regime>/<module>.txt``, at least as many as asked for.

    UserError for a damaged file, and when every source fails.
    """
    found = _on_disk(wanted, data_dir, log)
    if found is not None:
        return found
    with lock(data_dir / ".mathematics_dataset.lock", log):
        found = _on_disk(wanted, data_dir, log)  # another process may have fetched them meanwhile
        if found is None and download and official.fetch(data_dir / OFFICIAL_ARCHIVE, log):
            found = _on_disk(wanted, data_dir, log)
        if found is None:
            tree = data_dir / GENERATED_TREE
            made_by = generator.generate(wanted, tree, data_dir / ".generator-env", log)
            found = _read_tree("generator", tree, wanted, log)
            if found is None:
                raise UserError(f"{tree}: the generator left too few pairs; delete the folder and try again.")
            found.source["made_by"] = made_by
    return found


def _on_disk(wanted: Mapping[str, int], data_dir: Path, log: Log) -> Texts | None:
    folders = [root / place for root in data_roots(data_dir) for place in PLACES]
    for folder in folders:
        found = _read_tree("official tree", folder / OFFICIAL_TREE, wanted, log)
        if found is None and (folder / OFFICIAL_ARCHIVE).is_file():
            unpack(folder / OFFICIAL_ARCHIVE, data_dir / OFFICIAL_TREE, wanted, log)
            found = _read_tree("official archive", data_dir / OFFICIAL_TREE, wanted, log)
        if found is not None:
            return found
    for folder in folders:
        for name in SMALL_ARCHIVES:
            found = _read_archive(folder / name, wanted, log)
            if found is not None:
                return found
    return _read_tree("generator", data_dir / GENERATED_TREE, wanted, log)


def _read_tree(kind: str, tree: Path, wanted: Mapping[str, int], log: Log) -> Texts | None:
    paths = {name: path for name in wanted for path in (tree / name, tree / f"{name}.gz") if path.is_file()}
    if set(paths) != set(wanted):
        return None
    contents = {name: read_file(path) for name, path in paths.items()}
    return _texts(kind, tree, contents, {name: str(path) for name, path in paths.items()}, wanted, log)


def _read_archive(archive: Path, wanted: Mapping[str, int], log: Log) -> Texts | None:
    if not archive.is_file():
        return None
    contents = read_members(archive, wanted)
    if set(contents) != set(wanted):
        return None
    return _texts("regenerated archive", archive, contents, {name: f"{archive}/{name}" for name in wanted}, wanted, log)


def _texts(
    kind: str, where: Path, contents: dict[str, bytes], labels: dict[str, str], wanted: Mapping[str, int], log: Log
) -> Texts | None:
    pairs = {name: parse_pairs(contents[name], labels[name]) for name in wanted}
    for name, count in wanted.items():
        if len(pairs[name]) < count:
            log(f"{labels[name]}: {len(pairs[name])} pairs, {count} are wanted; looking further")
            return None
    log(f"reading {where}")
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in wanted}
    return Texts(pairs, labels, {"kind": kind, "path": str(where), "sha256": digests})


def unpack(archive: Path, tree: Path, wanted: Mapping[str, int], log: Log) -> None:
    """Take the wanted files out of the official archive, each written whole or not at all."""
    missing = [name for name in wanted if not (tree / name).is_file()]
    if missing:
        log(f"unpacking {len(missing)} files of {archive} (the archive is read through once)")
        for name, content in read_members(archive, missing).items():
            with atomic_writer(tree / name) as stream:
                stream.write(content)
