"""Schemas of the generated data sets whose tests are broken down by difficulty (``ntl.data.sets.generated``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ntl.config.data import DatasetConfig, rows
from ntl.config.settings import setting, text_of
from ntl.system.errors import UserError

SENTENCE_WORDS = 8  # of every sentence of a needle's text
MOST_WORDS = 1 << 17
MOST_KEYS = 64
STAR = "Bachmann and Nagarajan (2024)"


@dataclass
class GeneratedConfig(DatasetConfig):
    """Rows by split; ``test_rows`` counts those of each group that the scores are broken down by."""

    train_rows: int = rows(100_000, "Rows for training.")
    validation_rows: int = rows(1_000, "Rows for validation.")
    test_rows: int = rows(2_000, "Rows of each group of a test.")
    seed: int = setting(0, "Seed of the rows; that of the training is the run's own.", min=0)


@dataclass
class PolynomialConfig(GeneratedConfig):
    """Arithmetic on polynomials over the field of seven elements, modulo X^5."""

    computes: ClassVar[bool | None] = True

    _target_: str = "ntl.data.sets.generated.PolynomialArithmetic"
    name: str = "polynomial"
    answers: str = "exact"
    train_rows: int = rows(1_000_000, "Rows for training.")
    validation_rows: int = rows(5_000, "Rows for validation.")
    max_operations: int = setting(5, "The most operations of training.", origin="Gloeckle et al. (2024)", min=1, max=50)
    extrapolate_operations: int = setting(10, "The most operations of extrapolation.", min=2, max=100)

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        most, further = self.max_operations, self.extrapolate_operations
        if further <= most:
            line = f"must be above dataset.max_operations={most}, or extrapolation would test what was trained."
            raise UserError(f"dataset.extrapolate_operations={further}: {line}")


@dataclass
class InductionConfig(GeneratedConfig):
    """Stories whose last word is the second part of a name that occurred before."""

    _target_: str = "ntl.data.sets.generated.Induction"
    name: str = "induction"
    answers: str = "continuation"
    parts: int = setting(60, "First parts, and second parts, that names are made of.", min=16, max=60)
    max_names: int = setting(4, "The most persons of a story; the fewest are two.", min=2, max=6)
    sentences: int = setting(6, "Sentences between the introduction of the persons and the last one.", min=0)
    known_names: bool = setting(False, "Names of the tests occur in training stories, too; false: their parts alone.")
    test_rows: int = rows(1_000, "Rows of each number of persons.")


@dataclass
class StarGraphConfig(GeneratedConfig):
    """The path from the centre of a star of paths to the end of one of them."""

    _target_: str = "ntl.data.sets.generated.StarGraph"
    name: str = "star_graph"
    answers: str = "exact"
    train_rows: int = rows(200_000, "Rows for training.", origin=STAR)
    degree: int = setting(2, "Paths that begin at the centre.", origin=STAR, min=2)
    path_length: int = setting(5, "Nodes of a path, with the centre and its end.", origin=STAR, min=2)
    nodes: int = setting(50, "Labels that nodes are drawn from.", origin=STAR, min=3)
    test_rows: int = rows(10_000, "Rows of the test.")

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        needed = 1 + self.degree * (self.path_length - 1)
        if needed > self.nodes:
            paths = f"{self.degree} paths of {self.path_length} nodes"
            raise UserError(f"dataset.nodes={self.nodes}: {paths} need {needed} labels; raise it.")


@dataclass
class RecallConfig(GeneratedConfig):
    """Numbers that a question asks for, by where they stand."""

    computes: ClassVar[bool | None] = False

    digits: int = setting(4, "Digits of each number.", "digits", min=2, max=9)
    depths: list[int] = setting(lambda: [0, 25, 50, 75, 100], "How far into a test the number asked for stands.", "%")
    test_rows: int = rows(200, "Rows of each depth at each length.")

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        if not _differ(self.depths, 0, 100):
            given = text_of(self.depths)
            raise UserError(f"dataset.depths={given}: must be different whole numbers of 0 to 100, at least one.")


@dataclass
class NeedleConfig(RecallConfig):
    """One number of a long text."""

    _target_: str = "ntl.data.sets.generated.Needle"
    name: str = "needle"
    train_rows: int = rows(50_000, "Rows for training.")
    keys: int = setting(4, "Things in a text whose number is told; one of them is asked for.", min=1, max=MOST_KEYS)
    lengths: list[int] = setting(lambda: [128, 256, 512, 1024], "Lengths of training, multiples of 8.", "words")
    extrapolate_lengths: list[int] = setting(lambda: [2048], "Those of extrapolation.", "words")

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        _check_rising("lengths", self.lengths, self.extrapolate_lengths, MOST_WORDS, SENTENCE_WORDS)
        if (shortest := min(self.lengths)) // SENTENCE_WORDS <= self.keys:
            raise UserError(
                f"dataset.lengths: {shortest} words are {shortest // SENTENCE_WORDS} sentences, too few for the "
                f"question and dataset.keys={self.keys}; lower dataset.keys, or leave out that length."
            )


@dataclass
class KeyValuesConfig(RecallConfig):
    """One number of a list."""

    _target_: str = "ntl.data.sets.generated.KeyValues"
    name: str = "key_values"
    keys: list[int] = setting(lambda: [2, 4, 8, 16], "Keys of a list of training and interpolation.")
    extrapolate_keys: list[int] = setting(lambda: [32], "Those of extrapolation.")

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        _check_rising("keys", self.keys, self.extrapolate_keys, MOST_KEYS)


def _differ(values: Sequence[int], least: int, most: int, step: int = 1) -> bool:
    """Whether these are different multiples of ``step`` within the limits, at least one."""
    return 0 < len({*values}) == len(values) and all(least <= each <= most and not each % step for each in values)


def _check_rising(name: str, values: Sequence[int], further: Sequence[int], most: int, step: int = 1) -> None:
    """UserError unless both lists have different multiples of ``step`` up to ``most``, the further above the others.

    ``name`` is the setting, and ``extrapolate_`` and it that of the further values.
    """
    kind = f"multiples of {step}" if step > 1 else "whole numbers"
    for key, given in ((name, values), (f"extrapolate_{name}", further)):
        if not _differ(given, step, most, step):
            line = f"must be different {kind} of {step} to {most:,}, at least one."
            raise UserError(f"dataset.{key}={text_of(given)}: {line}")
    if min(further) <= max(values):
        line = f"must be above dataset.{name}={text_of(values)}, or extrapolation would test what was trained."
        raise UserError(f"dataset.extrapolate_{name}={text_of(further)}: {line}")
