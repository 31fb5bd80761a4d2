"""Tasks whose rows are drawn one by one: polynomials and paths in graphs, which have a single right way, and recall."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from operator import mul
from pathlib import Path
from typing import ClassVar, NamedTuple

import yaml

from ntl.config.settings import Rule, setting
from ntl.data.dataset import Row, rows, words
from ntl.data.sets.drawn import Generated, above, different, drawn_on, side_of

SENTENCE_WORDS = 8  # of every sentence of a needle's text
MOST_KEYS = 64
STAR = "Bachmann and Nagarajan (2024)"
PRIME, TERMS = 7, 5
DIGITS = "0123456"
WORDS = yaml.safe_load(Path(__file__).parents[1].joinpath("words.yaml").read_bytes())
WORDS = {name: words(value) if isinstance(value, str) else value for name, value in WORDS.items()}
TOKEN = re.compile(rf"[{DIGITS}]{{{TERMS}}}|[-+*@()]")
Polynomial = list[int]


# ---- polynomials


@dataclass
class PolynomialArithmetic(Generated):
    """Arithmetic on polynomials over the field of seven elements, modulo X^5.

    As in Gloeckle et al. (2024), section 4.2: ``(30214*-(11111@06310))=`` -> ``25501``. Five digits c0 c1 c2 c3 c4 are
    the polynomial c0 + c1 X + ... + c4 X^4 over the field of seven elements. ``-`` is the negation of what follows it,
    ``+`` the sum, ``*`` the product, ``f@g`` the composition f(g(X)) of polynomials of degree 4, each cut off at X^5.

    An expression of m operations has one of the four, uniformly, at its root, and the other m - 1 are divided uniformly
    between its operands; coefficients are uniform. m is 1 to ``max_operations`` equally often in training and in
    ``interpolate``, and higher in ``extrapolate``; it is the group of a row. How expressions are drawn and written is
    our choice: the paper does not say. Scored by exact match.
    """

    all_splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    metrics = "text"
    computes: ClassVar[bool | None] = True

    _target_: str = "ntl.data.sets.generated.PolynomialArithmetic"
    name: str = "polynomial"
    answers: str = "exact"
    train_rows: int = rows(1_000_000, "Rows for training.")
    validation_rows: int = rows(5_000, "Rows for validation.")
    max_operations: int = setting(5, "The most operations of training.", origin="Gloeckle et al. (2024)", min=1, max=50)
    extrapolate_operations: int = setting(10, "The most operations of extrapolation.", min=2, max=100)

    def conditions(self) -> Iterator[Rule]:
        return above(self, "extrapolate_operations", "max_operations")

    def cells(self, split: str) -> range:
        most = self.max_operations
        return range(most + 1, self.extrapolate_operations + 1) if split == "extrapolate" else range(1, most + 1)

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


@dataclass
class StarGraph(Generated):
    """The path from the centre of a star of paths to the end of one of them.

    After Bachmann and Nagarajan (2024), "The pitfalls of next-token prediction". ``degree`` paths of ``path_length``
    nodes begin at a common centre. The question lists all edges in random order, ``12>7 33>4 ... from 5 to 40``, and
    asks for the path from the centre to the end of one of them: ``5 12 7 33 40``. Only the first step is hard: it needs
    the whole path ahead, and a model that guesses it, and looks up the rest, is right with probability 1 / ``degree``.
    No graph of a test occurs in training with the same goal.
    """

    metrics = "text"

    _target_: str = "ntl.data.sets.generated.StarGraph"
    name: str = "star_graph"
    answers: str = "exact"
    train_rows: int = rows(200_000, "Rows for training.", origin=STAR)
    degree: int = setting(2, "Paths that begin at the centre.", origin=STAR, min=2)
    path_length: int = setting(5, "Nodes of a path, with the centre and its end.", origin=STAR, min=2)
    nodes: int = setting(50, "Labels that nodes are drawn from.", origin=STAR, min=3)
    test_rows: int = rows(10_000, "Rows of the test.")

    def conditions(self) -> Iterator[Rule]:
        needed, paths = 1 + self.degree * (self.path_length - 1), f"{self.degree} paths of {self.path_length} nodes"
        if needed > self.nodes:
            yield ".nodes", f"{paths} need {needed} labels; raise it."

    def cells(self, split: str) -> list[None]:
        return [None]

    def draw(self, rng: random.Random, side: str, cell: None) -> Row:
        length = self.path_length - 1

        def star() -> list[list[int]]:  # its paths, of which the first is asked for
            centre, *others = rng.sample(range(self.nodes), 1 + self.degree * length)
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

START, END = "Story:", "In the end they all thanked"


@dataclass
class Induction(Generated):
    """Stories whose last word is the second part of a name that occurred before.

    After the induction experiment of Gloeckle et al. (2024), section 4.1. Two or more persons are introduced by their
    whole names, then act, and the last sentence thanks one of them. Whoever has learnt to look up what followed the
    first part (induction) knows its last word; one who copies any second part is right once in as many times as there
    are persons, which is the group of a row. The names of the tests occur in no training story, though their parts do.
    With ``known_names`` every split draws from all names.

    A row is a whole story, and question and answer are where it is cut: for training and validation after the word
    ``Story:``, so that a decoder-only model learns the whole text; for the test before its last word, of which exact
    match is the accuracy. Each part is a common word, a single token of the published tokenizers of GPT-2 and T5.
    """

    metrics = "text"

    _target_: str = "ntl.data.sets.generated.Induction"
    name: str = "induction"
    answers: str = "continuation"
    parts: int = setting(60, "First parts, and second parts, that names are made of.", min=16, max=60)
    max_names: int = setting(4, "The most persons of a story; the fewest are two.", min=2, max=6)
    sentences: int = setting(6, "Sentences between the introduction of the persons and the last one.", min=0)
    known_names: bool = setting(False, "Names of the tests occur in training stories, too; false: their parts alone.")
    test_rows: int = rows(1_000, "Rows of each number of persons.")

    def cells(self, split: str) -> range:
        return range(2, self.max_names + 1)

    def draw(self, rng: random.Random, side: str, cell: int) -> Row:
        story = self._story(rng, _persons(rng, "" if self.known_names else side, self.parts, cell))
        pieces = story.split(" ")
        cut = len(pieces) - 1 if side == "test" else 1
        return Row(" ".join(pieces[:cut]), " ".join(pieces[cut:]), str(cell))

    def _story(self, rng: random.Random, persons: list[str]) -> str:
        sentences = [f"{rng.choice(WORDS['openings'])} {' and '.join(persons)} met {rng.choice(WORDS['places'])}."]
        for _ in range(self.sentences):
            action = rng.choice(WORDS["actions"])
            who = rng.sample(persons, action.count("{}"))
            sentences.append(action.format(*who, thing=rng.choice(WORDS["things"]), place=rng.choice(WORDS["places"])))
        return " ".join([START, *sentences, END, rng.choice(persons)])


@cache
def names_of(side: str, parts: int) -> list[str]:
    """The names that stories of this side have; of no side, all names."""
    names = [f"{first} {second}" for first in WORDS["first"][:parts] for second in WORDS["second"][:parts]]
    return [name for name in names if side in ("", side_of(name))]


def _persons(rng: random.Random, side: str, parts: int, count: int) -> list[str]:
    """Names without a common part, so that the first part tells the second."""
    names = names_of(side, parts)
    while True:
        chosen = rng.sample(names, count)
        if len({part for name in chosen for part in name.split()}) == 2 * count:
            return chosen


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


@dataclass
class Recall(Generated):
    """Numbers that are told, all different, of which one is asked for, by where it stands.

    The group of a row is ``16@50``: its length, and where what is asked for stands, from 0 (first) to 100 (last);
    training asks for all places, the tests for those of ``depths``. A pair of key and number that a test asks for is
    never asked for in training.
    """

    all_splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    computes: ClassVar[bool | None] = False
    length: ClassVar[str]  # the setting with the lengths of training
    longest: ClassVar[int]
    multiple_of: ClassVar[int] = 1

    digits: int = setting(4, "Digits of each number.", "digits", min=2, max=9)
    depths: list[int] = setting(lambda: [0, 25, 50, 75, 100], "How far into a test the number asked for stands.", "%")
    test_rows: int = rows(200, "Rows of each depth at each length.")

    def conditions(self) -> Iterator[Rule]:
        yield from different(self, "depths", 0, 100)
        further, most, step = f"extrapolate_{self.length}", self.longest, self.multiple_of
        yield from different(self, self.length, step, most, step)
        yield from different(self, further, step, most, step)
        yield from above(self, further, self.length)

    def cells(self, split: str) -> list[Place]:
        depths = self.depths if split in self.test_splits else [None]
        lengths = getattr(self, f"extrapolate_{self.length}" if split == "extrapolate" else self.length)
        return [Place(length, depth) for length in lengths for depth in depths]

    def pairs(self, rng: random.Random, side: str, count: int) -> list[tuple[str, int]]:
        """``count`` keys, all different, and their numbers, too; the first pair is on this side, to be asked for."""
        numbers = range(10 ** (self.digits - 1), 10**self.digits)
        asked = drawn_on(side, lambda: f"{rng.choice(WORDS['keys'])} {rng.choice(numbers)}")
        key, number = asked.split()
        keys = rng.sample([other for other in WORDS["keys"] if other != key], count - 1)
        others = [other for other in rng.sample(numbers, count) if other != int(number)][: count - 1]
        return [(key, int(number)), *zip(keys, others, strict=True)]


@dataclass
class KeyValues(Recall):
    """One number of a list: ``lamp: 4821, kite: 9130. What is kite?`` -> ``9130``; a length is a number of keys."""

    length, longest = "keys", MOST_KEYS

    _target_: str = "ntl.data.sets.generated.KeyValues"
    name: str = "key_values"
    keys: list[int] = setting(lambda: [2, 4, 8, 16], "Keys of a list of training and interpolation.")
    extrapolate_keys: list[int] = setting(lambda: [32], "Those of extrapolation.")

    def draw(self, rng: random.Random, side: str, cell: Place) -> Row:
        slot, group = cell.among(cell.length, rng)
        asked, *others = self.pairs(rng, side, cell.length)
        listed = [*others[:slot], asked, *others[slot:]]
        text = ", ".join(f"{key}: {number}" for key, number in listed)
        return Row(f"{text}. What is {asked[0]}?", str(asked[1]), group)


@dataclass
class Needle(Recall):
    """One number of a long text.

    Sentences such as ``The quiet heron waited behind the old mill.``, and those that tell the numbers of ``keys``
    things, ``The secret number of the lamp is 4821.``; the last asks for one of them. Every sentence has eight words; a
    length is the number of words of a question, all included.
    """

    length, longest, multiple_of = "lengths", 1 << 17, SENTENCE_WORDS

    _target_: str = "ntl.data.sets.generated.Needle"
    name: str = "needle"
    train_rows: int = rows(50_000, "Rows for training.")
    keys: int = setting(4, "Things in a text whose number is told; one of them is asked for.", min=1, max=MOST_KEYS)
    lengths: list[int] = setting(lambda: [128, 256, 512, 1024], "Lengths of training, multiples of 8.", "words")
    extrapolate_lengths: list[int] = setting(lambda: [2048], "Those of extrapolation.", "words")

    def conditions(self) -> Iterator[Rule]:
        yield from super().conditions()
        sentences = (shortest := min(self.lengths)) // SENTENCE_WORDS
        if sentences <= self.keys:
            few = f"{shortest} words are {sentences} sentences, too few for the question and all keys"
            yield ".lengths .keys", f"{few}; lower dataset.keys."

    def draw(self, rng: random.Random, side: str, cell: Place) -> Row:
        slots = cell.length // SENTENCE_WORDS - 1
        slot, group = cell.among(slots, rng)
        asked, *others = self.pairs(rng, side, self.keys)
        sentences = [_distractor(rng) for _ in range(slots)]
        free = [place for place in range(slots) if place != slot]
        for place, pair in zip([slot, *rng.sample(free, len(others))], [asked, *others], strict=True):
            sentences[place] = NEEDLE.format(*pair)
        return Row(" ".join([*sentences, QUESTION.format(asked[0])]), str(asked[1]), group)


def _distractor(rng: random.Random) -> str:
    def word(name: str) -> str:
        return rng.choice(WORDS[name])

    quality, animal, deed, kind = word("qualities"), word("animals"), word("deeds"), rng.randrange(3)
    if kind == 0:
        return f"The {quality} {animal} {deed} {word('where')} the old {word('buildings')}."
    if kind == 1:
        return f"Every {word('times')} the {animal} {deed} {word('where')} the {word('buildings')}."
    return f"The {quality} {animal} {deed} with the {word('qualities')} {word('animals')}."
