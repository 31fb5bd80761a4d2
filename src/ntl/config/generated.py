"""Schemas of the generated data sets whose tests are broken down by difficulty (``ntl.data.dataset``)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ntl.config.data import DatasetConfig
from ntl.config.settings import setting
from ntl.system.errors import UserError

SENTENCE_WORDS = 8  # of every sentence of a needle's text
MOST_WORDS = 1 << 17
MOST_KEYS = 64


@dataclass
class GeneratedConfig(DatasetConfig):
    """Rows by split; ``test_rows`` counts those of each group that the scores are broken down by."""

    train_rows: int = setting(100_000, "Rows for training.", unit="rows", min=1)
    validation_rows: int = setting(1_000, "Rows for validation.", unit="rows", min=1)
    test_rows: int = setting(2_000, "Rows of each group of a test.", unit="rows", min=1)
    seed: int = setting(0, "Seed of the rows; that of the training is the run's own.", min=0)


@dataclass
class PolynomialConfig(GeneratedConfig):
    """Arithmetic on polynomials over the field of seven elements, modulo X^5."""

    _target_: str = "ntl.data.sets.polynomial.PolynomialArithmetic"
    name: str = "polynomial"
    answers: str = "exact"
    train_rows: int = setting(1_000_000, "Rows for training.", unit="rows", min=1)
    validation_rows: int = setting(5_000, "Rows for validation.", unit="rows", min=1)
    max_operations: int = setting(
        5, "The most operations of training and interpolation.", origin="Gloeckle et al. (2024)", min=1, max=50
    )
    extrapolate_operations: int = setting(10, "The most operations of extrapolation.", min=2, max=100)

    @property
    def is_computed(self) -> bool:
        return True

    def check(self, data_dir: str) -> None:
        most, further = self.max_operations, self.extrapolate_operations
        if further <= most:
            raise UserError(
                f"dataset.extrapolate_operations={further}: must be above dataset.max_operations={most}, "
                "or extrapolation would test what was trained."
            )


@dataclass
class InductionConfig(GeneratedConfig):
    """Stories whose last word is the second part of a name that occurred before."""

    _target_: str = "ntl.data.sets.induction.Induction"
    name: str = "induction"
    answers: str = "continuation"
    parts: int = setting(60, "First parts, and second parts, that names are made of.", min=16, max=60)
    max_names: int = setting(4, "The most persons of a story; the fewest are two.", min=2, max=6)
    sentences: int = setting(6, "Sentences between the introduction of the persons and the last one.", min=0)
    test_rows: int = setting(1_000, "Rows of each number of persons.", unit="rows", min=1)


@dataclass
class StarGraphConfig(GeneratedConfig):
    """The path from the centre of a star of paths to the end of one of them."""

    _target_: str = "ntl.data.sets.star_graph.StarGraph"
    name: str = "star_graph"
    answers: str = "exact"
    train_rows: int = setting(200_000, "Rows for training.", unit="rows", origin="Bachmann and Nagarajan (2024)", min=1)
    degree: int = setting(2, "Paths that begin at the centre.", origin="Bachmann and Nagarajan (2024)", min=2)
    path_length: int = setting(
        5, "Nodes of a path, with the centre and its end.", origin="Bachmann and Nagarajan (2024)", min=2
    )
    nodes: int = setting(50, "Labels that nodes are drawn from.", origin="Bachmann and Nagarajan (2024)", min=3)
    test_rows: int = setting(10_000, "Rows of the test.", unit="rows", min=1)

    def check(self, data_dir: str) -> None:
        needed = 1 + self.degree * (self.path_length - 1)
        if needed > self.nodes:
            raise UserError(
                f"dataset.nodes={self.nodes}: {self.degree} paths of {self.path_length} nodes need {needed} "
                "labels; raise it."
            )


@dataclass
class RecallConfig(GeneratedConfig):
    """Numbers that a question asks for, by where they stand."""

    digits: int = setting(4, "Digits of each number.", unit="digits", min=2, max=9)
    depths: list[int] = setting(
        lambda: [0, 25, 50, 75, 100],
        "Where the number asked for stands in the tests: 0 is the beginning, 100 the end.",
        unit="%",
    )
    test_rows: int = setting(200, "Rows of each depth at each length.", unit="rows", min=1)

    @property
    def is_computed(self) -> bool:
        return False

    def check(self, data_dir: str) -> None:
        depths = self.depths
        if not depths or any(not 0 <= depth <= 100 for depth in depths) or len({*depths}) < len(depths):
            raise UserError(
                f"dataset.depths=[{','.join(map(str, depths))}]: must be different whole numbers of 0 to 100, at "
                "least one."
            )


@dataclass
class NeedleConfig(RecallConfig):
    """One number of a long text."""

    _target_: str = "ntl.data.sets.needle.Needle"
    name: str = "needle"
    train_rows: int = setting(50_000, "Rows for training.", unit="rows", min=1)
    keys: int = setting(4, "Things in a text whose number is told; one of them is asked for.", min=1, max=MOST_KEYS)
    lengths: list[int] = setting(
        lambda: [128, 256, 512, 1024],
        "Lengths of a question of training and interpolation, multiples of 8.",
        unit="words",
    )
    extrapolate_lengths: list[int] = setting(lambda: [2048], "Those of extrapolation.", unit="words")

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        check_rising("lengths", self.lengths, self.extrapolate_lengths, MOST_WORDS, SENTENCE_WORDS)
        if (shortest := min(self.lengths)) // SENTENCE_WORDS <= self.keys:
            raise UserError(
                f"dataset.lengths: {shortest} words are {shortest // SENTENCE_WORDS} sentences, too few for the "
                f"question and dataset.keys={self.keys}; lower dataset.keys, or leave out that length."
            )


@dataclass
class KeyValuesConfig(RecallConfig):
    """One number of a list."""

    _target_: str = "ntl.data.sets.key_values.KeyValues"
    name: str = "key_values"
    keys: list[int] = setting(lambda: [2, 4, 8, 16], "Keys of a list of training and interpolation.")
    extrapolate_keys: list[int] = setting(lambda: [32], "Those of extrapolation.")

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        check_rising("keys", self.keys, self.extrapolate_keys, MOST_KEYS)


def check_rising(name: str, values: Sequence[int], further: Sequence[int], most: int, step: int = 1) -> None:
    """UserError unless both lists have values, multiples of ``step`` up to ``most``, the further ones above the others.

    ``name`` is the setting, and ``extrapolate_`` and it that of the further values.
    """
    for key, given in ((name, values), (f"extrapolate_{name}", further)):
        if not given or len({*given}) < len(given) or any(each < step or each % step or each > most for each in given):
            kind = f"multiples of {step}" if step > 1 else "whole numbers"
            raise UserError(
                f"dataset.{key}={_listed(given)}: must be different {kind} of {step} to {most:,}, at least one."
            )
    if min(further) <= max(values):
        raise UserError(
            f"dataset.extrapolate_{name}={_listed(further)}: must be above dataset.{name}={_listed(values)}, or "
            "extrapolation would test what was trained."
        )


def _listed(values: Iterable[int]) -> str:
    return f"[{','.join(map(str, values))}]"
