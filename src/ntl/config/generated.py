"""Schemas of the generated data sets whose tests are broken down by difficulty (``ntl.data.generated``)."""

from dataclasses import dataclass, field
from typing import Any

from ntl.config.data import DatasetConfig


def setting(default: Any, meaning: str, /, **metadata: Any) -> Any:
    """A field with what it means and its limits."""
    return field(default=default, metadata={"meaning": meaning, **metadata})


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


@dataclass
class RecallConfig(GeneratedConfig):
    """Numbers that a question asks for, by where they stand."""

    digits: int = setting(4, "Digits of each number.", unit="digits", min=2, max=9)
    depths: list[int] = field(
        default_factory=lambda: [0, 25, 50, 75, 100],
        metadata={
            "meaning": "Where the number asked for stands in the tests: 0 is the beginning, 100 the end.",
            "unit": "%",
        },
    )
    test_rows: int = setting(200, "Rows of each depth at each length.", unit="rows", min=1)


@dataclass
class NeedleConfig(RecallConfig):
    """One number of a long text."""

    _target_: str = "ntl.data.sets.needle.Needle"
    name: str = "needle"
    train_rows: int = setting(50_000, "Rows for training.", unit="rows", min=1)
    keys: int = setting(4, "Things in a text whose number is told; one of them is asked for.", min=1, max=64)
    lengths: list[int] = field(
        default_factory=lambda: [128, 256, 512, 1024],
        metadata={
            "meaning": "Lengths of a question of training and interpolation, multiples of 8.",
            "unit": "words",
        },
    )
    extrapolate_lengths: list[int] = field(
        default_factory=lambda: [2048], metadata={"meaning": "Those of extrapolation.", "unit": "words"}
    )


@dataclass
class KeyValuesConfig(RecallConfig):
    """One number of a list."""

    _target_: str = "ntl.data.sets.key_values.KeyValues"
    name: str = "key_values"
    keys: list[int] = field(
        default_factory=lambda: [2, 4, 8, 16],
        metadata={"meaning": "Keys of a list of training and interpolation."},
    )
    extrapolate_keys: list[int] = field(default_factory=lambda: [32], metadata={"meaning": "Those of extrapolation."})
