"""Tasks whose rows are drawn one by one, and two with a single right way: polynomials, and paths in graphs."""

import hashlib
import random
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ntl.config.generated import PolynomialConfig, StarGraphConfig
from ntl.data.dataset import Log, Material, Row, TextDataset, numbered
from ntl.system.errors import UserError

# Draws until a row counts as not to be found.
TRIES = 10_000
Drawn = TypeVar("Drawn")
PRIME, TERMS = 7, 5
DIGITS = "0123456"
TOKEN = re.compile(rf"[{DIGITS}]{{{TERMS}}}|[-+*@()]")
Polynomial = list[int]


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
        counts = {"train": self.config.train_rows, "validation": self.config.validation_rows}
        counts |= {split: self.config.test_rows * len(self.cells(split)) for split in self.test_splits}
        log(f"{self.name}: computing {sum(counts.values()):,} rows")
        return Material({split: numbered(split, self._rows(split, count), count) for split, count in counts.items()})

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


# ---- polynomials


class PolynomialArithmetic(Generated):
    """Polynomials, as in Gloeckle et al. (2024), section 4.2: ``(30214*-(11111@06310))=`` -> ``25501``.

    Five digits c0 c1 c2 c3 c4 are the polynomial c0 + c1 X + ... + c4 X^4 over the field of seven elements. ``-`` is
    the negation of what follows it, ``+`` the sum, ``*`` the product, ``f@g`` the composition f(g(X)) of polynomials of
    degree 4, each cut off at X^5.

    An expression of m operations has one of the four, uniformly, at its root, and the other m - 1 are divided uniformly
    between its operands; coefficients are uniform. m is 1 to ``max_operations`` equally often in training and in
    ``interpolate``, and higher in ``extrapolate``; it is the group of a row. How expressions are drawn and written is
    our choice: the paper does not say. Scored by exact match.
    """

    metrics = "text"
    config: PolynomialConfig

    def cells(self, split: str) -> range:
        most = self.config.max_operations
        return range(most + 1, self.config.extrapolate_operations + 1) if split == "extrapolate" else range(1, most + 1)

    def draw(self, rng: random.Random, side: str, cell: int) -> Row:
        question = drawn_on(side, lambda: f"{expression(rng, cell)}=")
        return Row(question, answer_of(question), str(cell))


def expression(rng: random.Random, operations: int) -> str:
    if not operations:
        return "".join(rng.choices(DIGITS, k=TERMS))
    operation = rng.choice("-+*@")
    if operation == "-":
        return f"-{expression(rng, operations - 1)}"
    left = rng.randrange(operations)
    return f"({expression(rng, left)}{operation}{expression(rng, operations - 1 - left)})"


def answer_of(question: str) -> str:
    """The coefficients of a question's value."""
    return "".join(map(str, _value(iter(TOKEN.findall(question)))))


def _value(tokens: Iterator[str]) -> Polynomial:
    token = next(tokens)
    if token == "-":
        return [-a % PRIME for a in _value(tokens)]
    if token == "(":
        left, operation, right = _value(tokens), next(tokens), _value(tokens)
        next(tokens)  # the closing parenthesis
        return BINARY[operation](left, right)
    return [int(digit) for digit in token]


def plus(f: Polynomial, g: Polynomial) -> Polynomial:
    return [(a + b) % PRIME for a, b in zip(f, g, strict=True)]


def times(f: Polynomial, g: Polynomial) -> Polynomial:
    a, b, c, d, e = f
    p, q, r, s, t = g
    product = a * p, a * q + b * p, a * r + b * q + c * p, a * s + b * r + c * q + d * p
    return [term % PRIME for term in (*product, a * t + b * s + c * r + d * q + e * p)]


def composed(f: Polynomial, g: Polynomial) -> Polynomial:
    """f(g(X)), by Horner's rule."""
    return reduce(lambda value, a: plus(times(value, g), [a] + [0] * (TERMS - 1)), reversed(f), [0] * TERMS)


BINARY = {"+": plus, "*": times, "@": composed}


# ---- paths in graphs


class StarGraph(Generated):
    """Paths in star graphs, after Bachmann and Nagarajan (2024), "The pitfalls of next-token prediction".

    ``degree`` paths of ``path_length`` nodes begin at a common centre. The question lists all edges in random order,
    ``12>7 33>4 ... from 5 to 40``, and asks for the path from the centre to the end of one of them: ``5 12 7 33 40``.
    Only the first step is hard: it needs the whole path ahead, and a model that guesses it, and looks up the rest, is
    right with probability 1 / ``degree``. No graph of a test occurs in training with the same goal.
    """

    splits = ("train", "validation", "test")
    test_splits = ("test",)
    metrics = "text"
    config: StarGraphConfig

    def cells(self, split: str) -> list[None]:
        return [None]

    def draw(self, rng: random.Random, side: str, cell: None) -> Row:
        length = self.config.path_length - 1

        def star() -> list[list[int]]:  # its paths, of which the first is asked for
            centre, *others = rng.sample(range(self.config.nodes), 1 + self.config.degree * length)
            return [[centre, *others[i : i + length]] for i in range(0, len(others), length)]

        def edges_of(paths: list[list[int]]) -> list[tuple[int, int]]:
            return [edge for path in paths for edge in pairwise(path)]

        # The graph and the goal, whatever the order of the edges.
        paths = drawn_on(side, star, lambda paths: f"{sorted(edges_of(paths))} {paths[0][-1]}")
        edges, path = edges_of(paths), paths[0]
        rng.shuffle(edges)
        listed = " ".join(f"{a}>{b}" for a, b in edges)
        return Row(f"{listed} from {path[0]} to {path[-1]}", " ".join(map(str, path)))
