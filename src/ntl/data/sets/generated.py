"""Tasks whose rows are drawn one by one: polynomials and paths in graphs, which have a single right way, and recall."""

import hashlib
import random
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from itertools import pairwise
from operator import mul
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from ntl.config.generated import (
    SENTENCE_WORDS,
    InductionConfig,
    KeyValuesConfig,
    NeedleConfig,
    PolynomialConfig,
    RecallConfig,
    StarGraphConfig,
)
from ntl.data.dataset import Log, Material, Row, TextDataset, numbered, words
from ntl.system.errors import UserError

# Draws until a row counts as not to be found.
TRIES = 10_000
Drawn = TypeVar("Drawn")
PRIME, TERMS = 7, 5
DIGITS = "0123456"
TOKEN = re.compile(rf"[{DIGITS}]{{{TERMS}}}|[-+*@()]")
Polynomial = list[int]


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

    splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
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
    return [sum(map(mul, f[: n + 1], g[n::-1])) % PRIME for n in range(TERMS)]


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


# ---- recall: a name of a story, a number of a list or of a long text; the words are our own

FIRST = words(
    "Tom Anna Ben Lucy Max Emma Sam Rose Jack Adam Kate Paul Jane Peter Mary Luke Sara Noah Julia Simon Laura David "
    "Alice Martin Helen Robert Diana Victor Grace Henry Emily Frank Sophie George Hannah Arthur Ruby Daniel Amy "
    "Felix Eva Marcus Oliver Lisa Philip Claire Walter Rachel Edward Sarah Thomas Linda Jacob Susan Joseph Karen "
    "Maria Oscar Charlie Michael"
)
SECOND = words(
    "Hill Wood Fox Stone King Brook Field Park Bell Cook Miller Baker Fisher Hunter Green Brown Black White Gray "
    "Young Long Short Day Summer Winter Frost Snow Lake Ford Bridge Moore Marsh Reed Rice Berry Apple Bush Flowers "
    "Forest Glass Gold Silver Steel Iron Cross Church Page Price Rich Power Love Joy Hope Sharp Swift Strong Grant "
    "Mason Carter Porter"
)
START, END = "Story:", "In the end they all thanked"
OPENINGS = ("One day", "One morning", "Long ago", "Last summer", "Once")
PLACES = ("in the garden", "by the river", "near the old tower", "at the farm", "on the hill", "under the bridge")
THINGS = ("kite", "lamp", "boat", "drum", "cake", "basket", "little bird", "blue stone", "wooden horse", "letter")
ACTIONS = (
    "{} found a {thing} {place}.",
    "{} gave the {thing} to {}.",
    "{} could not find the {thing}.",
    "Then {} asked {} for help.",
    "{} and {} looked for the {thing} {place}.",
    "{} laughed and showed {} the {thing}.",
    "A dog ran after {} {place}.",
    "{} was tired and sat down {place}.",
)


class Induction(Generated):
    """Stories with names of two parts, after the induction experiment of Gloeckle et al. (2024), section 4.1.

    Two or more persons are introduced by their whole names, then act, and the last sentence thanks one of them: its
    last word is the second part of a name that occurred before. Whoever has learnt to look up what followed the first
    part (induction) knows it; one who copies any second part is right once in as many times as there are persons, which
    is the group of a row. The names of the tests occur in no training story, though their parts do. With
    ``known_names`` every split draws from all names.

    A row is a whole story, and question and answer are where it is cut: for training and validation after the word
    ``Story:``, so that a decoder-only model learns the whole text; for the test before its last word, of which exact
    match is the accuracy. Each part is a common word, a single token of the published tokenizers of GPT-2 and T5.
    """

    metrics = "text"
    config: InductionConfig

    def cells(self, split: str) -> range:
        return range(2, self.config.max_names + 1)

    def draw(self, rng: random.Random, side: str, cell: int) -> Row:
        story = self._story(rng, _persons(rng, "" if self.config.known_names else side, self.config.parts, cell))
        told = story.split(" ")
        cut = len(told) - 1 if side == "test" else 1
        return Row(" ".join(told[:cut]), " ".join(told[cut:]), str(cell))

    def _story(self, rng: random.Random, persons: list[str]) -> str:
        sentences = [f"{rng.choice(OPENINGS)} {' and '.join(persons)} met {rng.choice(PLACES)}."]
        for _ in range(self.config.sentences):
            action = rng.choice(ACTIONS)
            who = rng.sample(persons, action.count("{}"))
            sentences.append(action.format(*who, thing=rng.choice(THINGS), place=rng.choice(PLACES)))
        return " ".join([START, *sentences, END, rng.choice(persons)])


@cache
def names_of(side: str, parts: int) -> list[str]:
    """The names that stories of this side have; of no side, all names."""
    names = [f"{first} {second}" for first in FIRST[:parts] for second in SECOND[:parts]]
    return [name for name in names if side in ("", side_of(name))]


def _persons(rng: random.Random, side: str, parts: int, count: int) -> list[str]:
    """Names without a common part, so that the first part tells the second."""
    names = names_of(side, parts)
    while True:
        chosen = rng.sample(names, count)
        if len({part for name in chosen for part in name.split()}) == 2 * count:
            return chosen


KEYS = words(
    "apple bag ball basket bed bell boat book bottle bowl box bread brush bucket button cake candle card chair "
    "clock coat coin cup desk door drum egg feather flag flower fork garden gate glass hammer hat horn key kite "
    "knife ladder lamp leaf letter lock map mirror needle pan pencil pipe plate pot ring rope shell shoe spoon "
    "stone sword table tent wheel window"
)
QUALITIES = words("quiet old young tall small grey clever hungry shy proud brave gentle")
ANIMALS = words("heron fox goat mouse donkey cat goose hare mole swan crow frog")
DEEDS = words("waited slept sang hid stood danced rested walked")
WHERE = words("behind near beside below above inside")
BUILDINGS = words("mill barn well orchard church market cave tower")
TIMES = words("morning evening night winter summer autumn")
NEEDLE = "The secret number of the {} is {}."
QUESTION = "What is the secret number of the {}?"


class Place(NamedTuple):
    """How many keys or words there are, and the depth in percent; None in training, where it is drawn."""

    length: int
    depth: int | None

    def among(self, slots: int, rng: random.Random) -> tuple[int, str]:
        """The slot at this depth, and the group of the row."""
        slot = rng.randrange(slots) if self.depth is None else (self.depth * (slots - 1) + 50) // 100
        depth = round(100 * slot / max(slots - 1, 1)) if self.depth is None else self.depth
        return slot, f"{self.length}@{depth}"


class Recall(Generated):
    """Numbers that are told, all different, of which one is asked for.

    The group of a row is ``16@50``: its length, and where what is asked for stands, from 0 (first) to 100 (last);
    training asks for all places, the tests for those of ``depths``. A pair of key and number that a test asks for is
    never asked for in training.
    """

    splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    lengths: ClassVar[str]  # the setting with the lengths of training
    config: RecallConfig

    def cells(self, split: str) -> list[Place]:
        depths = self.config.depths if split in self.test_splits else [None]
        lengths = getattr(self.config, f"extrapolate_{self.lengths}" if split == "extrapolate" else self.lengths)
        return [Place(length, depth) for length in lengths for depth in depths]

    def pairs(self, rng: random.Random, side: str, count: int) -> list[tuple[str, int]]:
        """``count`` keys, all different, and their numbers, too; the first pair is on this side, to be asked for."""
        numbers = range(10 ** (self.config.digits - 1), 10**self.config.digits)
        asked = drawn_on(side, lambda: f"{rng.choice(KEYS)} {rng.choice(numbers)}")
        key, number = asked.split()
        keys = rng.sample([other for other in KEYS if other != key], count - 1)
        others = [other for other in rng.sample(numbers, count) if other != int(number)][: count - 1]
        return [(key, int(number)), *zip(keys, others, strict=True)]


class KeyValues(Recall):
    """``lamp: 4821, kite: 9130. What is kite?`` -> ``9130``; a length is a number of keys."""

    lengths = "keys"
    config: KeyValuesConfig

    def draw(self, rng: random.Random, side: str, cell: Place) -> Row:
        slot, group = cell.among(cell.length, rng)
        asked, *others = self.pairs(rng, side, cell.length)
        listed = [*others[:slot], asked, *others[slot:]]
        text = ", ".join(f"{key}: {number}" for key, number in listed)
        return Row(f"{text}. What is {asked[0]}?", str(asked[1]), group)


class Needle(Recall):
    """A text of sentences such as ``The quiet heron waited behind the old mill.`` that tells the numbers of ``keys``
    things, ``The secret number of the lamp is 4821.``, and ends by asking for one of them.

    Every sentence has eight words; a length is the number of words of a question, all included.
    """

    lengths = "lengths"
    config: NeedleConfig

    def draw(self, rng: random.Random, side: str, cell: Place) -> Row:
        slots = cell.length // SENTENCE_WORDS - 1
        slot, group = cell.among(slots, rng)
        asked, *others = self.pairs(rng, side, self.config.keys)
        sentences = [_distractor(rng) for _ in range(slots)]
        free = [place for place in range(slots) if place != slot]
        for place, pair in zip([slot, *rng.sample(free, len(others))], [asked, *others], strict=True):
            sentences[place] = NEEDLE.format(*pair)
        return Row(" ".join([*sentences, QUESTION.format(asked[0])]), str(asked[1]), group)


def _distractor(rng: random.Random) -> str:
    quality, animal, deed = rng.choice(QUALITIES), rng.choice(ANIMALS), rng.choice(DEEDS)
    kind = rng.randrange(3)
    if kind == 0:
        return f"The {quality} {animal} {deed} {rng.choice(WHERE)} the old {rng.choice(BUILDINGS)}."
    if kind == 1:
        return f"Every {rng.choice(TIMES)} the {animal} {deed} {rng.choice(WHERE)} the {rng.choice(BUILDINGS)}."
    return f"The {quality} {animal} {deed} with the {rng.choice(QUALITIES)} {rng.choice(ANIMALS)}."
