"""What every data set offers. A new one is a subclass with ``material``, in a file of its own in ``ntl.data.sets``."""

import dataclasses
import hashlib
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from omegaconf import OmegaConf

from ntl.config import build
from ntl.config.composition import schemas
from ntl.config.identity import by_content, read_contents
from ntl.config.suggestions import nearest
from ntl.data import raw
from ntl.data.raw import Log as Log
from ntl.data.store import Example
from ntl.system.errors import UserError

GROUP = "dataset/"
# Draws until a row counts as not to be found.
TRIES = 10_000
SAY_SECONDS = 15.0
Drawn = TypeVar("Drawn")


@dataclass
class Material:
    """The rows of each split, and where they came from, for the manifest.

    ``missing`` maps a split whose file could not be found to where to get it. ``remarks`` go into the record of every
    run.
    """

    splits: dict[str, Iterable[Example]]
    source: dict[str, Any] = field(default_factory=lambda: {"kind": "computed from the config"})
    missing: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, Any] = field(default_factory=dict)


class TextDataset(ABC):
    """Questions and answers as text: how the rows are made, and what is known about them.

    Where they are written and read is ``ntl.data.Prepared``.

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

    @abstractmethod
    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows for every split. Deterministic given the config and the source; called under a lock."""

    def scored(self, answer: str) -> str:
        """The part of an answer that is scored as a number; by default all of it."""
        return answer

    def obtainable(self, missing: Iterable[str], data_dir: Path, log: Log, *, download: bool) -> bool:
        """Whether the file of a split that an earlier preparation had to leave out can be had now."""
        files = self.origin.files if self.origin else {}
        return any(raw.obtain(files[split], data_dir, log, download=download) for split in missing)

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
        """The config's values that decide the rows; the content of a file stands for its path."""
        node = OmegaConf.structured(self.config) if dataclasses.is_dataclass(self.config) else self.config
        container: Any = OmegaConf.to_container(node, resolve=True, enum_to_str=True)
        return by_content({key: value for key, value in container.items() if key not in ("_target_", "format")})

    @property
    def folder_name(self) -> str:
        """``<name>-<8 hex digits>``, the digits from the config's values and the version."""
        content = json.dumps({"version": self.version, "config": self.values}, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def numbered(split: str, pairs: Iterable[tuple[str, ...]], total: int) -> Iterable[Example]:
    """Examples with ids ``<split>/00017``, the number as wide as the largest of ``total``, at least five digits.

    A pair may have a third text, the messages ``before`` it.
    """
    width = id_width(total)
    for index, (question, answer, *before) in enumerate(pairs):
        example = Example(id=f"{split}/{index:0{width}d}", question=question, answer=answer)
        if before:
            example["before"] = before[0]
        yield example


def id_width(total: int) -> int:
    """Digits of the number in an id, so that ids sort as rows do."""
    return max(5, len(str(total - 1)))


def dataset_named(name: str, data_dir: Path | str = "data", **values: Any) -> TextDataset:
    """The data set with its schema's defaults (the paper's sizes), some of them replaced: ``train_rows=1000``.

    ``data_dir`` is where files that a setting names are looked for, besides the working directory.
    """
    known = {path.removeprefix(GROUP): schema for path, schema in schemas().items() if path.startswith(GROUP)}
    if name not in known:
        raise UserError(f"no data set {name!r}; choose one of {', '.join(sorted(known))}.{nearest(name, known)}")
    try:
        config = known[name](**values)
        config.check(data_dir)
        read_contents(config, data_dir)
        return build(config)
    except TypeError as error:
        raise UserError(f"data set {name!r}: {error}.") from error


class Row(NamedTuple):
    """``group`` is what the scores are broken down by; empty if they are not."""

    question: str
    answer: str
    group: str = ""


def words(text: str) -> list[str]:
    """The words of a grammar."""
    return text.split()


def side_of(content: str) -> str:
    """train, validation or test: the same on every machine and for every seed."""
    first = hashlib.sha256(content.encode()).digest()[0]
    return "train" if first >= 64 else ("validation" if first >= 32 else "test")


def drawn_on(side: str, draw: Callable[[], Drawn], content: Callable[[Drawn], str] = str) -> Drawn:
    """The first of the things that ``draw`` gives whose content is on this side. UserError if none is found."""
    for _ in range(TRIES):
        drawn = draw()
        if side_of(content(drawn)) == side:
            return drawn
    raise UserError(f"too few different questions with these settings: none of {TRIES:,} is for {side}; raise them.")


class Generated(TextDataset):
    """Rows that are drawn one by one from a seed, with tests that are broken down into groups.

    What a test asks never occurs in training, whatever the seeds and sizes are: ``side_of`` divides all possible
    contents by a digest, three quarters for training and an eighth each for validation and test, and a row is drawn
    until it is on the right side. So nothing is remembered of the training rows, which are written as they are drawn.
    Validation and each test have no row twice; training draws with replacement.
    """

    splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits: ClassVar[tuple[str, ...]] = ("interpolate", "extrapolate")

    @abstractmethod
    def cells(self, split: str) -> Sequence[Any]:
        """What the rows of a split are like, in turn: each cell gets as many rows as the next."""

    @abstractmethod
    def draw(self, rng: random.Random, side: str, cell: Any) -> Row:
        """A row of this cell whose content is on this side (``side_of``)."""

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Each split draws from a stream of its own: more training rows leave the test rows as they are."""
        self.config.check(str(data_dir))
        rows = {"train": self.config.train_rows, "validation": self.config.validation_rows}
        rows |= {split: self.config.test_rows * len(self.cells(split)) for split in self.test_splits}
        log(f"{self.name}: computing {sum(rows.values()):,} rows")
        return Material({split: self._examples(split, count, log) for split, count in rows.items()})

    def _examples(self, split: str, count: int, log: Log) -> Iterator[Example]:
        width, said = id_width(count), time.monotonic()
        for index, row in enumerate(self._rows(split, count)):
            group = f"{row.group}/" if row.group else ""
            yield Example(id=f"{split}/{group}{index:0{width}d}", question=row.question, answer=row.answer)
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                log(f"{self.name}: {split}: {index + 1:,} of {count:,} rows")

    def _rows(self, split: str, count: int) -> Iterator[Row]:
        # A text as seed is digested by SHA-512, and not by Python's own hash, which differs between processes.
        rng = random.Random(f"{self.name} {self.config.seed} {split}")
        side = "test" if split in self.test_splits else split
        cells = self.cells(split)
        seen: set[bytes] = set()
        for index in range(count):
            for _ in range(TRIES):
                row = self.draw(rng, side, cells[index % len(cells)])
                digest = hashlib.sha256(f"{row.question} {row.answer}".encode()).digest()[:8]
                if side == "train" or digest not in seen:
                    break
            else:
                raise UserError(
                    f"dataset={self.name}: {split} has {count:,} rows, and only {index:,} different ones were "
                    "found for it; lower dataset.test_rows or dataset.validation_rows."
                )
            if side != "train":
                seen.add(digest)
            yield row
