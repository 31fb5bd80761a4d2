"""What every data set offers. A new one is a dataclass with ``material``, in a file of its own in ``ntl.data.sets``."""

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NotRequired, TypedDict, cast

from omegaconf import OmegaConf, errors

from ntl.config.composition import schemas
from ntl.config.folders import literal
from ntl.config.identity import by_content, plain, read_contents
from ntl.config.root import DatasetConfig
from ntl.config.settings import Rule, nearest, setting, text_of
from ntl.data import raw
from ntl.system.errors import UserError

GROUP = "dataset/"
PLAIN_NUMBERS = "plain"
CODE = "original code"
# The files of the package's own data sets; their classes have a ``version``.
VERSIONED = ("file", "generated", "mathematics", "multiplication", "noisy_numbers", "official")
SEED = "Seed of the order and the choice of rows; training takes the run's own."


def rows(default: int, meaning: str, **about: Any) -> Any:
    """A number of rows, at least one."""
    return setting(default, meaning, "rows", **{"min": 1, **about})


class Example(TypedDict):
    """One row. ``id`` is ``<split>/<number>``, or ``<split>/<group>/<number>`` where the data set has groups."""

    id: str
    question: str
    answer: str
    before: NotRequired[str]  # earlier messages, as JSON
    weight: NotRequired[str]  # of its answer in the loss: as JSON a number, or [characters, weight] of each part
    labels: NotRequired[str]  # what each rater answered, of whom ``answer`` is the mean, as a JSON list of numbers


class Row(NamedTuple):
    """``group`` is what the scores are broken down by; empty if they are not. ``more`` are further fields."""

    question: str
    answer: str
    group: str = ""
    more: Mapping[str, Any] = {}


@dataclass
class Material:
    """The rows of each split, and where they came from, for the manifest. ``remarks`` go into every run's record."""

    splits: Mapping[str, Iterable[Example]]
    source: dict[str, Any] = field(default_factory=lambda: {"kind": "computed from the config"})
    remarks: dict[str, Any] = field(default_factory=dict)


@dataclass
class TextDataset(DatasetConfig, ABC):
    """Questions and answers as text: settings, how the rows are made of them, and what is known about the rows.

    ``all_splits`` names all splits, ``test_splits`` those that are scored at the end. ``metrics`` is ``"number"``,
    ``"numbers"`` or ``"text"``. ``version`` counts changes of the rows that the same settings give; it is part of the
    folder's name. ``origin`` is the official release that the rows are read from, its files named after splits.
    """

    all_splits: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    test_splits: ClassVar[tuple[str, ...]] = ("test",)
    metrics: ClassVar[str] = "number"
    version: ClassVar[int] = 1
    origin: ClassVar[raw.Origin | None] = None
    only: ClassVar[str] = ""
    # Settings with these values are not part of the folder's name, which is from before there were these settings.
    later: ClassVar[tuple[tuple[str, Any], ...]] = (("weight", ""), ("number_format", PLAIN_NUMBERS))

    def alone(self, split: str) -> "TextDataset":
        """This data set with one split, prepared in a folder of its own from that split's files."""
        dataset = copy(self)
        vars(dataset)["only"] = split
        return dataset

    @property
    def wanted(self) -> tuple[str, ...]:
        """The splits that are to be made: all but for ``alone``."""
        return (self.only,) if self.only else self.all_splits

    def conditions(self) -> Iterator[Rule]:
        """Where its own settings do not fit each other: `Schema.rules` of a data set alone, without a config."""
        return iter(())

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        if self._target_ != (target := f"{type(self).__module__}.{type(self).__qualname__}"):
            raise UserError(f"dataset._target_={self._target_}: write {target}, the class that has these settings.")
        for names, line in self.conditions():
            settings = (f"dataset{name}={text_of(attrgetter(name[1:])(self))}" for name in names.split())
            raise UserError(f"{' '.join(settings)}: {line}")

    @abstractmethod
    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        """Rows of all that is ``wanted``. Deterministic given the config and the source; called under a lock."""

    def official(self, pairs: Mapping[str, Sequence[tuple[Any, ...]]], **remarks: Any) -> Material:
        """The material of an official release: question and answer of each row (``numbered``), by split."""
        origin = cast(raw.Origin, self.origin)
        rows = {split: numbered(split, pairs[split]) for split in self.wanted}
        digests = {file.path: file.sha256 for file in origin.files.values() if file.sha256}
        source = {"kind": "official files", "home": origin.home, "cite": origin.cite, "sha256": digests}
        return Material(rows, source, {"licence": origin.licence, **remarks})

    def read(self, split: str, data_dir: Path, download: bool) -> bytes:
        """The content of the official file that is named after a split."""
        assert self.origin is not None
        return raw.read(self.origin.files[split], data_dir, download)

    def scored(self, answer: str) -> str:
        """The part of an answer that is scored as a number; by default all of it."""
        return answer

    def group(self, example_id: str) -> str | None:
        """The part between split and number of an id (``interpolate/3x2/00012`` -> ``3x2``), or None."""
        parts = example_id.split("/")
        return parts[1] if len(parts) == 3 else None

    def truth(self, question: str) -> str | None:
        """The noise-free target as a decimal string, or None where it is not known."""
        return None

    def shortcut(self, question: str) -> str | None:
        """The answer of a known wrong rule, such as ignoring parentheses, or None."""
        return None

    @property
    def publishable(self) -> bool:
        """Whether the licence permits publishing its text; made-up questions have none."""
        return self.origin is None or self.origin.publishable

    @property
    def values(self) -> dict[str, Any]:
        """The settings that decide the rows; the content of a file stands for its path."""
        # Through the schema, which makes a float of an integer where one is meant.
        node = OmegaConf.merge(type(self), literal(plain(self)))
        values: Any = OmegaConf.to_container(node, resolve=True, enum_to_str=True)
        changes_no_row = ("_target_", "format", "exclude_numbers", "allow_generation")
        left_out = {key for key, value in values.items() if key in changes_no_row or (key, value) in self.later}
        return by_content({key: value for key, value in values.items() if key not in left_out})

    @property
    def folder_name(self) -> str:
        """``<name>-<8 hex digits>``, the digits from the settings and the version.

        Of a data set that was added, whose ``version`` nobody raises, the file of its class counts, too.
        """
        decides = {"version": self.version, "config": self.values, **({"only": self.only} if self.only else {})}
        module = type(self).__module__
        if module.rpartition(".")[2] not in VERSIONED:
            decides["code"] = hashlib.sha256(Path(str(sys.modules[module].__file__)).read_bytes()).hexdigest()
        return f"{self.name}-{hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:8]}"


def numbered(split: str, rows: Iterable[tuple[Any, ...]], total: int | None = None) -> Iterator[Example]:
    """Examples of `Row` or of (question, answer), with ids ``<split>/00017`` or ``<split>/group/00017``.

    The number is as wide as the largest of ``total``, at least five digits; ``total`` is the number of rows, which may
    be left out of a sequence.
    """
    largest = len(rows) if total is None and isinstance(rows, Sequence) else total or 0
    width = max(5, len(str(largest - 1)))
    for index, (question, answer, group, more) in enumerate(Row(*row) for row in rows):
        name = "/".join(filter(None, [split, group, f"{index:0{width}d}"]))
        yield Example(id=name, question=question, answer=answer, **more)


def words(text: str) -> list[str]:
    """The words of a list that a file has as one text."""
    return text.split()


def dataset_named(name: str, data_dir: Path | str = "data", **values: Any) -> TextDataset:
    """The data set with its default settings (the paper's sizes), some of them replaced: ``train_rows=1000``.

    ``data_dir`` is where files that a setting names are looked for, besides the working directory.
    """
    known = {path.removeprefix(GROUP): schema for path, schema in schemas().items() if path.startswith(GROUP)}
    if name not in known:
        raise UserError(f"no data set {name!r}; choose one of {', '.join(sorted(known))}.{nearest(name, known)}")
    try:
        dataset: Any = OmegaConf.to_object(OmegaConf.merge(known[name], literal(values)))
        dataset.check(data_dir)
        read_contents(dataset, data_dir)
        return dataset
    except errors.OmegaConfBaseException as error:
        raise UserError(f"data set {name!r}: {error.full_key}: {str(error).splitlines()[0]}.") from error
