"""Schemas of the data sets: the class that reads each, and how many rows are generated or used.

Those of the package's own sets stand here, so that a command answers before numpy is imported. Another set has its
schema in its own file, where ``added_schema`` finds it.
"""

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec

from omegaconf import MISSING


def _count(default: int) -> int:
    return field(default=default, metadata={"min": 1})


@dataclass
class DatasetConfig:
    """``name`` is the group's choice, ``_target_`` the class in ``ntl.data`` that is built from this config.

    An answer is a ``number``, ``reasoning`` that ends in one, or ``text`` (``ntl.config.legality``).
    """

    _target_: str = MISSING
    name: str = MISSING
    answers: str = "number"


@dataclass
class NoisyNumbersConfig(DatasetConfig):
    """Six fields and a noisy two-digit target written as text; the noise-free truth is known."""

    _target_: str = "ntl.data.sets.noisy_numbers.NoisyNumbers"
    name: str = "noisy_numbers"
    train_rows: int = _count(2000)
    validation_rows: int = _count(500)
    test_rows: int = _count(2000)
    noise_sd: float = field(default=6.0, metadata={"min": 0})
    seed: int = 0


@dataclass
class ArithmeticConfig(DatasetConfig):
    """DeepMind mathematics, module arithmetic__add_sub_multiple: the paper's 100k ablation set."""

    _target_: str = "ntl.data.sets.arithmetic.Arithmetic"
    name: str = "arithmetic"
    train_rows_per_difficulty: int = _count(33_333)
    validation_rows_per_difficulty: int = _count(1_000)
    test_rows: int = _count(10_000)
    seed: int = 0


@dataclass
class MathematicsConfig(DatasetConfig):
    """DeepMind mathematics, 13 modules of three difficulties: the paper's 26 million pairs.

    ``rows_per_file`` counts training and validation rows of each of the 39 training files, ``train_share`` of them for
    training; ``test_rows_per_file`` those of each of the 13 + 7 test files. ``allow_generation`` allows hours of work
    by the original generator where the official release is not available.
    """

    _target_: str = "ntl.data.sets.mathematics.Mathematics"
    name: str = "mathematics"
    rows_per_file: int = field(default=666_666, metadata={"min": 2})
    train_share: float = field(default=0.9995, metadata={"above": 0, "max": 1})
    test_rows_per_file: int = _count(10_000)
    seed: int = 0
    allow_generation: bool = False


@dataclass
class MultiplicationConfig(DatasetConfig):
    """``What is A times B?`` for operands of 1 to ``max_digits`` digits; tests go one digit further.

    ``exhaustive_digits`` n > 0 selects another set: every ordered pair of n-digit operands once, divided into
    ``train_rows``, ``validation_rows`` and ``test_rows_per_cell``.
    """

    _target_: str = "ntl.data.sets.multiplication.Multiplication"
    name: str = "multiplication"
    max_digits: int = field(default=5, metadata={"min": 1, "max": 9})
    extrapolate_digits: int = field(default=6, metadata={"min": 2, "max": 10})
    train_rows: int = _count(1_000_000)
    validation_rows: int = _count(5_000)
    test_rows_per_cell: int = _count(500)
    test_share: float = field(default=0.2, metadata={"above": 0, "max": 0.3})
    seed: int = 0
    exhaustive_digits: int = field(default=0, metadata={"min": 0, "max": 3})


def _limit() -> int:
    return field(default=0, metadata={"min": 0})


@dataclass
class GSM8KConfig(DatasetConfig):
    """Grade-school word problems, whose answer is a text that ends in ``#### number``.

    ``paper_compat`` corrupts the text as the original code did; ``test_rows`` 0 means all.
    """

    _target_: str = "ntl.data.sets.gsm8k.GSM8K"
    name: str = "gsm8k"
    answers: str = "reasoning"
    paper_compat: bool = False
    test_rows: int = _limit()


@dataclass
class RJokesConfig(DatasetConfig):
    """Jokes and their log-upvotes, 0 to 11; counts of 0 mean all rows.

    ``allow_dev_training`` trains and validates on parts of dev; the result is not comparable to the paper's.
    ``paper_compat`` keeps the file's backslash escapes and strips trailing white space, as the original code did.
    """

    _target_: str = "ntl.data.sets.rjokes.RJokes"
    name: str = "rjokes"
    allow_dev_training: bool = False
    paper_compat: bool = False
    train_rows: int = _limit()
    test_rows: int = _limit()


@dataclass
class MultiRCConfig(DatasetConfig):
    """Questions on a passage; an answer is all correct options. ``paper_compat`` keeps rows without any."""

    _target_: str = "ntl.data.sets.multirc.MultiRC"
    name: str = "multirc"
    answers: str = "text"
    paper_compat: bool = False


def added_schema(name: str, reader: type | None = None) -> type[DatasetConfig] | None:
    """The subclass of ``DatasetConfig`` that ``ntl.data.sets.NAME`` defines, or the module of the class ``reader``.

    None if there is no such file or class.
    """
    module = reader.__module__ if reader else f"ntl.data.sets.{name}"
    found = vars(import_module(module)).values() if reader or find_spec(module) else ()
    schemas = (each for each in found if isinstance(each, type) and issubclass(each, DatasetConfig))
    return next((each for each in schemas if each.__module__ == module), None)
