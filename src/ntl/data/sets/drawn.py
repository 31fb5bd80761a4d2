"""Data sets whose rows are drawn one by one, from a seed."""

import hashlib
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ntl.config.settings import Rule, setting, text_of
from ntl.data.dataset import Material, Row, TextDataset, numbered, rows
from ntl.system.errors import UserError
from ntl.system.messages import logger

# Draws until a row counts as not to be found.
TRIES = 10_000
Drawn = TypeVar("Drawn")


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


@dataclass
class Generated(TextDataset):
    """Rows that are drawn one by one from a seed, with tests that are broken down into groups.

    What a test asks never occurs in training, whatever the seeds and sizes are: ``side_of`` divides all possible
    contents by a digest, three quarters for training and an eighth each for validation and test, and a row is drawn
    until it is on the right side. So nothing is remembered of the training rows, which are written as they are drawn.
    Validation and each test have no row twice; training draws with replacement.
    """

    train_rows: int = rows(100_000, "Rows for training.")
    validation_rows: int = rows(1_000, "Rows for validation.")
    test_rows: int = rows(2_000, "Rows of each group of a test.")
    seed: int = setting(0, "Seed of the rows; that of the training is the run's own.", min=0)

    @abstractmethod
    def cells(self, split: str) -> Sequence[Any]:
        """What the rows of a split are like, in turn: each cell gets as many rows as the next."""

    @abstractmethod
    def draw(self, rng: random.Random, side: str, cell: Any) -> Row:
        """A row of this cell whose content is on this side (``side_of``)."""

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        """Each split draws from a stream of its own: more training rows leave the test rows as they are."""
        counts = {"train": self.train_rows, "validation": self.validation_rows}
        counts |= {split: self.test_rows * len(self.cells(split)) for split in self.test_splits}
        logger.info(f"{self.name}: computing {sum(counts.values()):,} rows")
        return Material({split: numbered(split, self._rows(split, count), count) for split, count in counts.items()})

    def _rows(self, split: str, count: int) -> Iterator[Row]:
        # A text as seed is digested by SHA-512, and not by Python's own hash, which differs between processes.
        rng = random.Random(f"{self.name} {self.seed} {split}")
        side = "test" if split in self.test_splits else split
        cells, seen = self.cells(split), set[tuple[str, ...]]()
        for index in range(count):
            for _ in range(TRIES):
                row = self.draw(rng, side, cells[index % len(cells)])
                if row[:2] not in seen:
                    break
            else:
                raise UserError(
                    f"dataset={self.name}: {split} has {count:,} rows, and only {index:,} different ones were "
                    "found for it; lower dataset.test_rows or dataset.validation_rows."
                )
            if side != "train":
                seen.add(row[:2])
            yield row


def different(data: TextDataset, name: str, least: int, most: int, step: int = 1) -> Iterator[Rule]:
    """The rule that a list has different multiples of ``step`` within the limits, at least one."""
    values = getattr(data, name)
    fits = 0 < len({*values}) == len(values) and all(least <= value <= most and not value % step for value in values)
    kind = f"multiples of {step}" if step > 1 else "whole numbers"
    if not fits:
        yield f".{name}", f"must be different {kind} of {least} to {most:,}, at least one."


def above(data: TextDataset, further: str, known: str) -> Iterator[Rule]:
    """The rule that a number or a list of extrapolation is above that of training."""
    trained = getattr(data, known)
    if np.min(getattr(data, further)) <= np.max(trained):
        line = f"must be above dataset.{known}={text_of(trained)}, or extrapolation would test what was trained."
        yield f".{further}", line
