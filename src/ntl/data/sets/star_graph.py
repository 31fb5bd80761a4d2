"""Paths in star graphs, after Bachmann and Nagarajan (2024), "The pitfalls of next-token prediction".

``degree`` paths of ``path_length`` nodes begin at a common centre. The question lists all edges in random order,
``12>7 33>4 ... from 5 to 40``, and asks for the path from the centre to the end of one of them: ``5 12 7 33 40``.

Only the first step is hard. After it each node has one successor, which can be looked up, while the first step needs
the whole path ahead: a model that guesses it is right with probability 1 / ``degree``, the chance level of exact match.
A model trained on one token ahead learns the look-up and stays there.
"""

import random
from itertools import pairwise
from typing import NamedTuple

from ntl.config.generated import StarGraphConfig
from ntl.data.dataset import Generated, Row, drawn_on


class Star(NamedTuple):
    """``paths`` without the centre; the first one is asked for."""

    centre: int
    paths: list[list[int]]

    @property
    def edges(self) -> list[tuple[int, int]]:
        return [edge for path in self.paths for edge in pairwise([self.centre, *path])]

    @property
    def content(self) -> str:
        """The graph and the goal, whatever the order of the edges."""
        return f"{sorted(self.edges)} {self.paths[0][-1]}"


class StarGraph(Generated):
    """No graph of a test occurs in training with the same goal. Scored by exact match of the whole path."""

    splits = ("train", "validation", "test")
    test_splits = ("test",)
    metrics = "text"
    config: StarGraphConfig

    def cells(self, split: str) -> list[None]:
        return [None]

    def draw(self, rng: random.Random, side: str, cell: None) -> Row:
        star = drawn_on(side, lambda: self._star(rng), lambda star: star.content)
        edges = star.edges
        rng.shuffle(edges)
        path = [star.centre, *star.paths[0]]
        listed = " ".join(f"{a}>{b}" for a, b in edges)
        return Row(f"{listed} from {path[0]} to {path[-1]}", " ".join(map(str, path)))

    def _star(self, rng: random.Random) -> Star:
        length = self.config.path_length - 1
        centre, *others = rng.sample(range(self.config.nodes), 1 + self.config.degree * length)
        return Star(centre, [others[i : i + length] for i in range(0, len(others), length)])
