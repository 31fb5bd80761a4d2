"""Schemas of the data sets. Each names the class that reads it; its numbers are the rows to make or take."""

from dataclasses import dataclass, field

from omegaconf import MISSING


def _count(default: int) -> int:
    return field(default=default, metadata={"min": 1})


@dataclass
class DatasetConfig:
    """``name`` is the group's choice; ``_target_`` the class in ``ntl.data`` built from this config."""

    _target_: str = MISSING
    name: str = MISSING


@dataclass
class NoisyNumbersConfig(DatasetConfig):
    """Six fields and a noisy two-digit target written as text; the noise-free truth is known."""

    _target_: str = "ntl.data.noisy_numbers.NoisyNumbers"
    name: str = "noisy_numbers"
    train_rows: int = _count(2000)
    validation_rows: int = _count(500)
    test_rows: int = _count(2000)
    noise_sd: float = field(default=6.0, metadata={"min": 0})
    seed: int = 0


@dataclass
class ArithmeticConfig(DatasetConfig):
    """DeepMind mathematics, module arithmetic__add_sub_multiple: the paper's 100k ablation set."""

    _target_: str = "ntl.data.arithmetic.Arithmetic"
    name: str = "arithmetic"
    train_rows_per_difficulty: int = _count(33_333)
    validation_rows_per_difficulty: int = _count(1_000)
    test_rows: int = _count(10_000)
    seed: int = 0


@dataclass
class MultiplicationConfig(DatasetConfig):
    """``What is A times B?`` for operands of 1 to ``max_digits`` digits; tests go one digit further."""

    _target_: str = "ntl.data.multiplication.Multiplication"
    name: str = "multiplication"
    max_digits: int = field(default=5, metadata={"min": 1, "max": 9})
    extrapolate_digits: int = field(default=6, metadata={"min": 2, "max": 10})
    train_rows: int = _count(1_000_000)
    validation_rows: int = _count(5_000)
    test_rows_per_cell: int = _count(500)
    test_share: float = field(default=0.2, metadata={"above": 0, "max": 0.3})
    seed: int = 0
