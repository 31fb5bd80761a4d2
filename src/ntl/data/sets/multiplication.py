"""``What is A times B?`` by operand length (paper, Table 5).

An n-digit operand is drawn from 10^(n-1) to 10^n - 1, so one digit means 1 to 9. The cell ``3x2`` holds the questions
with a three-digit A and a two-digit B. Every rule on sizes and overlap here is ours, as the paper gives none:

- test, each cell: ``min(test_rows_per_cell, test_share x ordered pairs that exist)``, without replacement;
- validation: rows spread evenly over the cells, each cell at most ``test_share / 2`` of its pairs, without replacement;
- train: the cell uniform over all, then A and B uniform, with replacement, among what is left;
- the unordered pair {A, B} of a row occurs in one of train, validation and test only. As both orders of a pair are held
  out, up to 3 x ``test_share`` of a small cell is not trained on.

With ``exhaustive_digits`` (the paper's comparison with xVal: all 810,000 pairs of three digits) every ordered pair is
in one split, and both orders of {A, B} are in the same, which the original's random split did not see to.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ntl.config.settings import Rule, setting
from ntl.data.dataset import SEED, Material, Row, TextDataset, numbered, rows
from ntl.data.sets.drawn import above
from ntl.system.messages import logger

Cell = tuple[int, int]


@dataclass
class Multiplication(TextDataset):
    """`What is A times B?` for operands of few digits; the extrapolation test has longer ones.

    ``interpolate`` has the training cells, ``extrapolate`` those with a factor of ``extrapolate_digits``. The
    exhaustive set has one ``test``. The group of a row is its cell.
    """

    _target_: str = "ntl.data.sets.multiplication.Multiplication"
    name: str = "multiplication"
    max_digits: int = setting(5, "The longest operand of training.", "digits", origin="paper, Table 5", min=1, max=9)
    extrapolate_digits: int = setting(6, "That of extrapolation.", "digits", origin="paper, Table 5", min=2, max=10)
    train_rows: int = rows(1_000_000, "Rows for training.")
    validation_rows: int = rows(5_000, "Rows for validation.")
    test_rows_per_cell: int = rows(500, "Test rows of two lengths, at most.", origin="paper (read off its heat map)")
    test_share: float = setting(0.2, "The largest share of all pairs of two lengths that tests.", above=0, max=0.3)
    seed: int = setting(0, SEED)
    exhaustive_digits: int = setting(
        0,
        "Above 0 another set: every ordered pair of operands of so many digits once, divided into `train_rows`, "
        "`validation_rows` and `test_rows_per_cell`.",
        "digits",
        min=0,
        max=3,
    )

    def conditions(self) -> Iterator[Rule]:
        if self.exhaustive_digits:
            asked = self.train_rows + self.validation_rows + self.test_rows_per_cell
            pairs = (9 * 10 ** (self.exhaustive_digits - 1)) ** 2
            if asked > pairs:
                line = f"there are {pairs} pairs, and all splits ask for {asked}; lower train_rows."
                yield ".exhaustive_digits", line
        else:
            yield from above(self, "extrapolate_digits", "max_digits")
            digits = range(1, self.max_digits + 1)
            most = sum(portion(cell, self.test_share / 2) for cell in product(digits, digits))
            if self.validation_rows > most:
                yield ".validation_rows", f"these cells hold at most {most} for validation."

    @property
    def all_splits(self) -> tuple[str, ...]:
        return ("train", "validation", *self.test_splits)

    @property
    def test_splits(self) -> tuple[str, ...]:
        return ("test",) if self.exhaustive_digits else ("interpolate", "extrapolate")

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        splits, of_pairs = {}, split_every_pair if self.exhaustive_digits else draw_splits
        logger.info(f"multiplication: computing {self.train_rows} training rows")
        for split, pairs in of_pairs(self).items():
            # Products are Python ints, as ten digits by ten pass int64.
            groups = ((a, b, f"{len(str(a))}x{len(str(b))}") for a, b in pairs.tolist())
            rows = (Row(f"What is {a} times {b}?", str(a * b), group) for a, b, group in groups)
            splits[split] = numbered(split, rows, len(pairs))
        return Material(splits)


def draw_splits(config: Multiplication) -> dict[str, np.ndarray]:
    """The operands (rows, 2) of each split: test before validation before train, each from a stream of its own.

    So the number of training rows leaves the test as it is.
    """
    inner_digits, far = range(1, config.max_digits + 1), config.extrapolate_digits
    inner = list(product(inner_digits, inner_digits))
    outer = [cell for cell in product([*inner_digits, far], [*inner_digits, far]) if far in cell]

    def drawn(stream: int, cells: list[Cell], counts: list[int], held_out: Any = ()) -> np.ndarray:
        rng = np.random.default_rng([config.seed, stream])
        parts = [distinct(rng, cell, count, held_out) for cell, count in zip(cells, counts, strict=True)]
        return rng.permutation(np.concatenate(parts))

    def tests(cells: list[Cell]) -> list[int]:
        return [min(config.test_rows_per_cell, portion(cell, config.test_share)) for cell in cells]

    interpolate = drawn(0, inner, tests(inner))
    extrapolate = drawn(1, outer, tests(outer))
    held_out = unordered(interpolate)
    counts = spread(config.validation_rows, [portion(cell, config.test_share / 2) for cell in inner])
    validation = drawn(2, inner, counts, held_out)
    held_out = np.union1d(held_out, unordered(validation))
    train = draw_train(np.random.default_rng([config.seed, 3]), config.max_digits, config.train_rows, held_out)
    return {"train": train, "validation": validation, "interpolate": interpolate, "extrapolate": extrapolate}


def portion(cell: Cell, share: float) -> int:
    """A share of a cell's pairs, rounded down, without float noise at the edge (0.29 x 8100 is 2349)."""
    return int(round(81 * 10 ** (sum(cell) - 2) * share, 6))


def draw(rng: np.random.Generator, digits: np.ndarray) -> np.ndarray:
    """Operands (n, 2) int64, uniform among those with ``digits`` (n, 2) digits."""
    power = 10 ** (digits - 1)
    return rng.integers(power, 10 * power)


def unordered(pairs: np.ndarray) -> np.ndarray:
    """One int64 for each {A, B}, whatever its order; operands below 10^9, so that the key fits."""
    return pairs.min(axis=1) * 10**9 + pairs.max(axis=1)


def distinct(rng: np.random.Generator, cell: Cell, count: int, held_out: np.ndarray) -> np.ndarray:
    """``count`` different ordered pairs (count, 2) of a cell, uniform among those that are not held out.

    Ends because ``test_share`` is at most 0.3: a tenth of a cell at least is left to draw from.
    """
    chosen: dict[Cell, None] = {}
    while len(chosen) < count:
        more = draw(rng, np.tile(cell, (2 * count, 1)))
        more = more[~np.isin(unordered(more), held_out)]
        chosen.update(dict.fromkeys(zip(*more.T.tolist(), strict=True)))
    return np.array(list(chosen)[:count], dtype=np.int64).reshape(-1, 2)


def spread(total: int, caps: list[int]) -> list[int]:
    """``total`` rows over cells as evenly as their caps allow."""
    counts = [0] * len(caps)
    while left := total - sum(counts):
        room = [index for index, cap in enumerate(caps) if counts[index] < cap]
        for place, index in enumerate(room):
            share = left // len(room) + (place < left % len(room))
            counts[index] += min(share, caps[index] - counts[index])
    return counts


def draw_train(rng: np.random.Generator, max_digits: int, rows: int, held_out: np.ndarray) -> np.ndarray:
    """Training operands (rows, 2): uniform over cells, then over the pairs of the cell that are not held out."""
    cell = rng.integers(max_digits**2, size=rows)
    digits = np.stack([cell // max_digits, cell % max_digits], axis=1) + 1
    pairs, again = np.empty((rows, 2), np.int64), np.arange(rows)
    while len(again):
        pairs[again] = draw(rng, digits[again])
        again = again[np.isin(unordered(pairs[again]), held_out)]
    return pairs


def split_every_pair(config: Multiplication) -> dict[str, np.ndarray]:
    """The operands (rows, 2) of each split of the exhaustive set, in random order, without replacement."""
    first = 10 ** (config.exhaustive_digits - 1)
    wanted = {"train": config.train_rows, "validation": config.validation_rows, "test": config.test_rows_per_cell}
    rng = np.random.default_rng([config.seed, 4])
    left, chosen = rng.permutation(np.stack(np.triu_indices(9 * first), axis=1) + first), {}
    for split in ("test", "validation", "train"):
        chosen[split], left = take_both_orders(left, wanted[split])
    return {split: rng.permutation(chosen[split]) for split in wanted}


def take_both_orders(unordered_pairs: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """``rows`` ordered pairs of the first of ``unordered_pairs`` (n, 2), and the unordered pairs that are left.

    A square fills a last single place; where none is left, one order of a pair does.
    """
    is_square = unordered_pairs[:, 0] == unordered_pairs[:, 1]
    filled = np.cumsum(2 - is_square)
    count = int(np.searchsorted(filled, rows, side="right"))
    taken, left = unordered_pairs[:count], unordered_pairs[count:]
    if rows > (filled[count - 1] if count else 0) and len(left):
        place = int(is_square[count:].argmax())
        taken, left = np.append(taken, left[place : place + 1], axis=0), np.delete(left, place, axis=0)
    swapped = taken[taken[:, 0] != taken[:, 1]][:, ::-1]
    return np.concatenate([taken, swapped])[:rows], left
