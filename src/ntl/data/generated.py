"""Data sets that are drawn row by row from a seed, with tests that are broken down into groups.

What a test asks never occurs in training, whatever the seeds and sizes are: ``side_of`` divides all possible contents
by a digest, three quarters for training and an eighth each for validation and test, and a row is drawn until it is on
the right side. So nothing is remembered of the training rows, which are written as they are drawn.
"""

import hashlib
import random
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from ntl.data.dataset import Log, Material, TextDataset, id_width
from ntl.data.store import Example
from ntl.system.errors import UserError

TRIES = 10_000
SAY_SECONDS = 15.0
Drawn = TypeVar("Drawn")


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
    """Validation and each test have no row twice; training draws with replacement."""

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
