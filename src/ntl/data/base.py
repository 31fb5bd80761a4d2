"""What every data set offers. A new one is a subclass with ``material``, in a file of its own."""

import dataclasses
import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import OmegaConf

from ntl.data import preparation, raw, store
from ntl.data.store import Example, Rows
from ntl.system.errors import UserError
from ntl.system.files import sha256_of

if TYPE_CHECKING:
    import datasets

Log = Callable[[str], None]
MAX_TARGETS = 1_000_000
logger = logging.getLogger(__name__)


@dataclass
class Material:
    """What a data set is prepared from: its rows per split, and where they came from, for the manifest.

    ``missing``: splits whose file could not be had -> where it is to be had. ``remarks`` go with every record of a run.
    """

    splits: dict[str, Iterable[Example]]
    source: dict[str, Any] = field(default_factory=lambda: {"kind": "computed from the config"})
    missing: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, Any] = field(default_factory=dict)


class TextDataset(ABC):
    """Questions and answers as text, prepared once under a data folder and read from there.

    ``splits`` names all splits, ``test_splits`` those that are scored at the end. ``metrics`` is ``"number"`` or
    ``"text"``. ``version`` counts changes of the rows that the same config gives; it is part of the folder's name.
    ``origin`` is the official release that the rows are read from, its files named after splits.
    """

    splits: ClassVar[tuple[str, ...]]
    test_splits: ClassVar[tuple[str, ...]]
    metrics: ClassVar[str] = "number"
    version: ClassVar[int] = 1
    origin: ClassVar[raw.Origin | None] = None

    def __init__(self, config: Any) -> None:
        self.config = config
        self.name: str = config.name
        # Folders that were prepared or found by this object: a run reads one, whatever happens to the files meanwhile.
        self._prepared: dict[Path, Path] = {}

    @abstractmethod
    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows for every split. Deterministic given the config and the source; called under a lock."""

    def fault(self, question: str, answer: str) -> str | None:
        """What is wrong with a row, where the data set can tell. Used to name the line of a damaged file."""
        return None

    def scored(self, answer: str) -> str:
        """The part of an answer that is scored as a number."""
        return answer

    def obtainable(self, missing: Iterable[str], data_dir: Path, log: Log, *, download: bool) -> bool:
        """Whether a file can now be had of splits that an earlier preparation had to leave out."""
        files = self.origin.files if self.origin else {}
        return any(raw.obtain(files[split], data_dir, log, download=download) for split in missing)

    def group(self, example_id: str) -> str | None:
        """The part between split and number of an id (``interpolate/3x2/00012`` -> ``3x2``), or None."""
        parts = example_id.split("/")
        return parts[1] if len(parts) == 3 else None

    def truth(self, question: str) -> str | None:
        """The noise-free target as a decimal string, where it is known."""
        return None

    def shortcut(self, question: str) -> str | None:
        """The answer of a rule that gets the question wrong in a known way, where the data set has one."""
        return None

    @property
    def values(self) -> dict[str, Any]:
        """The config's values, without the class that reads them."""
        node = OmegaConf.structured(self.config) if dataclasses.is_dataclass(self.config) else self.config
        container: Any = OmegaConf.to_container(node, resolve=True)
        return {key: value for key, value in container.items() if key != "_target_"}

    @property
    def folder_name(self) -> str:
        """``<name>-<8 hex digits>``, the digits from the config's values and the version."""
        content = json.dumps({"version": self.version, "config": self.values}, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"

    def folder(self, data_dir: Path | str) -> Path:
        """The prepared folder under ``data_dir`` or NTL_DATA_DIR; UserError says how to make it."""
        root = Path(data_dir)
        if (prepared := self._prepared.get(root)) and prepared.is_dir():
            return prepared
        found = preparation.find_prepared(self, root)
        if found is None:
            changed = [path for copy in preparation.copies(self, root) for path in copy.changed]
            why = f"{changed[0]} has changed since" if changed else f"no folder {root / self.folder_name}"
            raise UserError(
                f"{self.name} with these settings is not prepared: {why}; "
                f"run python scripts/prepare_data.py {self.name} with the same settings."
            )
        return found

    def prepare(
        self, data_dir: Path | str, log: Log = logger.info, *, verify: bool = False, download: bool = True
    ) -> Path:
        """Make the prepared files where they are missing, check them where they are there; returns their folder.

        They are made anew where a file that they were made from has changed, whatever opened it, or the code of the
        data set; what was made before stays beside, and is found again when the file is as it was. Atomic and safe
        against a second process that does the same. The check is of sizes, with ``verify`` of every
        sha256. ``download=False`` never asks the network for the official release.
        """
        folder = preparation.prepare(self, Path(data_dir), log, verify=verify, download=download)
        self._prepared[Path(data_dir)] = folder
        return folder

    def manifest(self, data_dir: Path | str) -> dict[str, Any]:
        """Source, versions and files of the prepared data set."""
        return store.read_manifest(self.folder(data_dir))

    def rows(self, split: str, data_dir: Path | str) -> Rows:
        """The rows of a split as a sequence of dicts, by plain reading, after a check of the file's sha256."""
        folder = self.folder(data_dir)
        return store.read_split(folder, split, self._entry(folder, split), self.fault)

    def load(self, split: str, data_dir: Path | str) -> "datasets.Dataset":
        """The rows of a split as a ``datasets.Dataset`` with the columns id, question and answer, memory-mapped."""
        from datasets import Dataset

        rows = self.rows(split, data_dir)
        folder = self.folder(data_dir)
        arrow = store.intact_arrow(folder, self._entry(folder, split))
        return Dataset.from_file(str(arrow)) if arrow else Dataset.from_list([dict(row) for row in rows])

    def train_targets(self, data_dir: Path | str) -> list[str]:
        """The answers of the training split, for scores of constant answers; of more than a million every k-th.

        All 26 million of the largest set would take gigabytes for the sake of a median.
        """
        rows = self.rows("train", data_dir)
        # One by one: a slice would hold every row's question as well.
        return [rows[index]["answer"] for index in range(0, len(rows), -(-len(rows) // MAX_TARGETS) or 1)]

    def fingerprint(self, data_dir: Path | str) -> dict[str, Any]:
        """``{"files": {file name: sha256}, "rows": {split: count}}`` of the prepared files, and the remarks on them."""
        manifest = self.manifest(data_dir)
        splits = manifest["splits"]
        return {
            "files": {entry["file"]: entry["sha256"] for entry in splits.values()},
            "rows": {split: entry["rows"] for split, entry in splits.items()},
            **manifest.get("remarks", {}),
        }

    def digests(self, data_dir: Path | str) -> dict[str, str]:
        """The sha256 of every prepared file as it is now, whatever the manifest says; none before it is prepared."""
        found = preparation.find_prepared(self, Path(data_dir))
        return {path.name: sha256_of(path) for path in sorted(found.glob("*.jsonl"))} if found else {}

    def changes_since(self, files: Mapping[str, str], data_dir: Path | str) -> str:
        """How the data differs from what a run was made of, ``fingerprint``'s ``files``; empty where nobody knows.

        Known without preparing or reading much: which rows are prepared, and whether their source is what it was.
        """
        found = preparation.copies(self, Path(data_dir)) if files else []
        own = [copy for copy in found if copy.digests == files]
        if any(not copy.changed for copy in own):
            return ""
        if own:
            return f"{' and '.join(own[0].changed)} has other content since"
        now = next((copy.digests for copy in found if copy.is_current), files)
        names = [name for name in sorted({*files, *now}) if files.get(name) != now.get(name)]
        return ", ".join(f"{name} had sha256 {files.get(name)} and has {now.get(name)}" for name in names)

    def content_key(self, split: str, data_dir: Path | str) -> str:
        """What the token ids of a split are kept under: a digest of the prepared files and the split's name."""
        content = [self.fingerprint(data_dir)["files"], split]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _entry(self, folder: Path, split: str) -> dict[str, Any]:
        if split not in self.splits:
            raise UserError(f"{self.name} has no split {split!r}; choose one of {', '.join(self.splits)}.")
        manifest = store.read_manifest(folder)
        entries = manifest["splits"]
        if why := manifest.get("missing", {}).get(split):
            raise raw.Missing(f"{self.name} has no {split} rows: {why}.")
        if split not in entries:
            raise UserError(f"{folder / store.MANIFEST}:1: no split {split!r}; delete the folder and prepare it again.")
        return entries[split]


def numbered(split: str, pairs: Iterable[tuple[str, str]], total: int) -> Iterable[Example]:
    """Examples with ids ``<split>/00017``, the number as wide as the largest of ``total``, at least five digits."""
    width = id_width(total)
    for index, (question, answer) in enumerate(pairs):
        yield Example(id=f"{split}/{index:0{width}d}", question=question, answer=answer)


def id_width(total: int) -> int:
    """Digits of the number in an id, so that ids sort as rows do."""
    return max(5, len(str(total - 1)))
