"""The text files of DeepMind mathematics, and where they come from, in this order:

1. files already under the data folder or NTL_DATA_DIR: the official tree (``mathematics_dataset-v1.0/<regime>/``
   ``<module>.txt``, plain or .gz), its archive, a regenerated archive, or what step 3 left;
2. the official release, when it can be downloaded;
3. the original generator, in an environment of its own.

A source must have every wanted file with enough pairs; otherwise the next one is tried.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ntl.data import raw
from ntl.data.files import Buffer, Pair, Pairs, iterate_members, map_file, map_unpacked, read_members
from ntl.data.raw import Log, Missing, Origin, data_roots
from ntl.data.sets import generator
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import atomic_writer, sweep
from ntl.system.locks import wait_for_lock, without_locks

# What is wrong with a pair: 1 for the question's line or 2 for the answer's, and the reason.
LineFault = Callable[[str, str], tuple[int, str] | None]
URL = "https://storage.googleapis.com/mathematics-dataset/mathematics_dataset-v1.0.tar.gz"
BYTES = 2_333_082_954
OFFICIAL_TREE = "mathematics_dataset-v1.0"
OFFICIAL_ARCHIVE = f"{OFFICIAL_TREE}.tar.gz"
GENERATED_TREE = "mathematics_dataset-generated"
# Folders the files may lie in, below a data root.
PLACES = ("", "mathematics_dataset")
SMALL_ARCHIVES = ("arithmetic-regen.tar.gz", "mathematics_dataset-regen-1k.tar.gz")
ORIGIN = Origin(
    home=URL,
    licence="Apache-2.0",
    cite="Saxton, Grefenstette, Hill, Kohli: Analysing Mathematical Reasoning Abilities of Neural Models. ICLR 2019.",
    publishable=True,
    files={},
)
# Hours of one core above which generation must be allowed by a setting.
GENERATED_UNASKED = 1.0


@dataclass
class Texts:
    """The pairs of ``<regime>/<module>.txt`` files, with labels for error messages and a source for the manifest."""

    pairs: dict[str, Pairs]
    labels: dict[str, str]
    source: dict[str, Any]

    def shuffled(self, name: str, seed: int, stream: int, count: int) -> np.ndarray:
        """Indices of the first ``count`` pairs of a file in an order that seed and stream decide, (count,) uint32."""
        order = np.arange(len(self.pairs[name]))
        np.random.default_rng([seed, stream]).shuffle(order)
        return order[:count].astype(np.uint32)

    def checked(self, name: str, order: np.ndarray, fault: LineFault) -> Iterator[Pair]:
        """The pairs of a file in this order; UserError with file and line where ``fault`` names one."""
        for start in range(0, len(order), 4096):
            chunk = order[start : start + 4096].astype(np.int64)
            for index, (question, answer) in zip(chunk.tolist(), self.pairs[name].take(chunk), strict=True):
                if found := fault(question, answer):
                    line, reason = found
                    raise UserError(f"{self.labels[name]}:{2 * index + line}: {reason}.")
                yield question, answer


def find_texts(
    wanted: Mapping[str, int], data_dir: Path, log: Log, *, download: bool = True, allow_generation: bool = False
) -> Texts:
    """The pairs of each wanted ``<regime>/<module>.txt``, at least as many as asked for.

    UserError for a damaged file and a generator that fails. Missing if the files are nowhere and cannot be generated
    here, or take hours to generate without ``allow_generation``.
    """
    found = _on_disk(wanted, data_dir, log)
    if found is not None:
        return found
    with wait_for_lock(data_dir / ".mathematics_dataset.lock", log) as held:
        if not held:
            log(without_locks(data_dir, "preparation", "data_dir"))
        found = _on_disk(wanted, data_dir, log)  # another process may have fetched them meanwhile
        if found is None and download and raw.download_archive(URL, BYTES, data_dir / OFFICIAL_ARCHIVE, log):
            found = _on_disk(wanted, data_dir, log)
        if found is None:
            tree = data_dir / GENERATED_TREE
            hours = generator.core_hours(wanted, tree)
            if hours > GENERATED_UNASKED and not allow_generation:
                raise Missing(
                    f"{sum(wanted.values()):,} pairs of DeepMind mathematics are nowhere under "
                    f"{' or '.join(map(str, data_roots(data_dir)))}: put {URL} there or where "
                    "NTL_DATA_DIR says, or set dataset.allow_generation=true "
                    f"(some {hours:.0f} hours on one core), or take fewer rows."
                )
            made_by = generator.generate(wanted, tree, data_dir / ".generator-env", log)
            found = _read_tree("generator", tree, wanted, data_dir, log)
            if found is None:
                raise UserError(f"{tree}: the generator left too few pairs; delete the folder and try again.")
            found.source["made_by"] = made_by
    return found


def _on_disk(wanted: Mapping[str, int], data_dir: Path, log: Log) -> Texts | None:
    folders = [root / place for root in data_roots(data_dir) for place in PLACES]
    for folder in folders:
        found = _read_tree("official tree", folder / OFFICIAL_TREE, wanted, data_dir, log)
        if found is None and (folder / OFFICIAL_ARCHIVE).is_file():
            unpack(folder / OFFICIAL_ARCHIVE, data_dir / OFFICIAL_TREE, wanted, log)
            found = _read_tree("official archive", data_dir / OFFICIAL_TREE, wanted, data_dir, log)
        if found is not None:
            return found
    for folder in folders:
        for name in SMALL_ARCHIVES:
            found = _read_archive(folder / name, wanted, log)
            if found is not None:
                return found
    return _read_tree("generator", data_dir / GENERATED_TREE, wanted, data_dir, log)


def _read_tree(kind: str, tree: Path, wanted: Mapping[str, int], data_dir: Path, log: Log) -> Texts | None:
    paths = {name: path for name in wanted for path in (tree / name, tree / f"{name}.gz") if path.is_file()}
    if set(paths) != set(wanted):
        return None
    contents = {
        name: map_unpacked(path, data_dir) if path.suffix == ".gz" else map_file(path) for name, path in paths.items()
    }
    return _texts(kind, tree, contents, {name: str(path) for name, path in paths.items()}, wanted, log)


def _read_archive(archive: Path, wanted: Mapping[str, int], log: Log) -> Texts | None:
    if not archive.is_file():
        return None
    contents: dict[str, Buffer] = {**read_members(archive, wanted)}
    if set(contents) != set(wanted):
        return None
    return _texts("regenerated archive", archive, contents, {name: f"{archive}/{name}" for name in wanted}, wanted, log)


def _texts(
    kind: str, where: Path, contents: dict[str, Buffer], labels: dict[str, str], wanted: Mapping[str, int], log: Log
) -> Texts | None:
    pairs = {name: Pairs(contents[name], labels[name]) for name in wanted}
    for name, count in wanted.items():
        if len(pairs[name]) < count:
            log(f"{labels[name]}: {len(pairs[name])} pairs, {count} are wanted; looking further")
            return None
    log(f"reading {where}")
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in wanted}
    return Texts(pairs, labels, {"kind": kind, "path": str(where), "sha256": digests})


def unpack(archive: Path, tree: Path, wanted: Mapping[str, int], log: Log) -> None:
    """Take the wanted files out of the official archive: all of them, or none where it is damaged."""
    missing = [name for name in wanted if not (tree / name).is_file()]
    if not missing:
        return
    log(f"unpacking {len(missing)} files of {archive} (the archive is read through once)")
    sweep(tree.parent, f".{tree.name}.part-*")
    with one_line_errors("unpack into", tree):
        tree.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{tree.name}.part-", dir=tree.parent) as name:
            part = Path(name)
            found: dict[str, None] = {}
            for member, content in iterate_members(archive, missing):
                with one_line_errors("write", part / member), atomic_writer(part / member) as stream:
                    stream.write(content)
                found[member] = None
            # The archive's checksum has been compared now.
            for member in found:
                (tree / member).parent.mkdir(parents=True, exist_ok=True)
                os.replace(part / member, tree / member)
